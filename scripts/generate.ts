/**
 * `npm run generate`: writes every file that is made from the code. With `--check` it writes nothing and fails with the
 * names of those that are stale.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

interface Generated {
  /** Path from the root of the project. */
  readonly file: string;
  readonly make: () => Promise<string>;
}

const TYPESCRIPT = 'clients/typescript/src';
const PYTHON = 'clients/python/src/rookery';
const ZYGOTE = 'runtimes/python/rookery_zygote';

/** A new generated file is a line here. */
const GENERATED: readonly Generated[] = [
  { file: 'docs/configuration.md', make: async () => (await import('../src/config/document.ts')).configurationPage() },
  { file: 'rookery.sample.yaml', make: async () => (await import('../src/config/document.ts')).sampleFile() },
  { file: 'docs/metrics.md', make: async () => (await import('../src/telemetry/document.ts')).metricsPage() },
  { file: 'docs/cli.md', make: cliPage },
  {
    file: 'docs/rookery.schema.json',
    make: async () => `${JSON.stringify((await import('../src/cli/deploy-file.ts')).deploySchema(), null, 2)}\n`,
  },
  { file: 'docs/errors.md', make: async () => (await import('./errors-page.ts')).errorsPage() },
  { file: 'docs/limits.md', make: async () => (await import('./limits-page.ts')).limitsPage() },
  { file: `${ZYGOTE}/container_filter.json`, make: containerFilter },
  { file: 'openapi/frontend.json', make: async () => (await import('./openapi.ts')).openApiDocument('frontend') },
  { file: 'openapi/meta.json', make: async () => (await import('./openapi.ts')).openApiDocument('meta') },
  { file: 'openapi/rookery.json', make: async () => (await import('./client-document.ts')).clientDocument() },
  // From the one above.
  { file: `${TYPESCRIPT}/generated.ts`, make: async () => clientTypes('typescriptTypes') },
  // Packed by the same code, a directory is the same package for the command line and for the client.
  ...['code-archive.ts', 'server-events.ts'].map(name => ({
    file: `${TYPESCRIPT}/${name}`,
    make: async () => clientCopy(name),
  })),
  { file: `${PYTHON}/types.py`, make: async () => clientTypes('pythonTypes') },
  ...['__init__', 'agents', 'client', 'code', 'connection', 'functions', 'jobs', 'terminal'].map(name => ({
    file: `${PYTHON}/_sync/${name}.py`,
    make: async () => (await import('./client-sync.ts')).syncModule(name),
  })),
];

const root = join(import.meta.dirname, '..');
const isCheck = process.argv.includes('--check');

const stale: string[] = [];
for (const { file, make } of GENERATED) {
  const path = join(root, file);
  const content = await make();
  if (read(path) === content) continue;
  stale.push(file);
  if (isCheck) continue;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
}

if (isCheck && stale.length > 0) {
  console.error(`stale: ${stale.join(', ')}. Run npm run generate and commit what it writes.`);
  process.exitCode = 1;
} else if (!isCheck) {
  console.log(stale.length === 0 ? 'every generated file is fresh' : `written: ${stale.join(', ')}`);
}

async function cliPage(): Promise<string> {
  const [{ cliPage }, { processIo }] = await Promise.all([
    import('../src/cli/document.ts'),
    import('../src/cli/io.ts'),
  ]);
  return cliPage({ io: processIo(new AbortController().signal), version: '', exitCode: 0 });
}

async function clientTypes(language: 'typescriptTypes' | 'pythonTypes'): Promise<string> {
  const types = await import('./client-types.ts');
  return types[language](types.readClientDocument());
}

/** What the command line and the client of TypeScript have in common: a published package has no files but its own. */
function clientCopy(name: string): string {
  const source = readFileSync(join(root, 'src/cli', name), 'utf8').replace("'./exit.ts'", "'./error.ts'");
  return `// Made by \`npm run generate\` from src/cli/${name}.\n${source}`;
}

async function containerFilter(): Promise<string> {
  const run = promisify(execFile);
  const { stdout } = await run('python3', ['-B', '-m', 'rookery_zygote.container_filter'], {
    cwd: join(root, 'runtimes/python'),
  });
  return stdout;
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
