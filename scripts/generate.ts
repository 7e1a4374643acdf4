/**
 * Writes every file that is made from the code: `npm run generate`.
 * With `--check` it writes nothing, and fails with the names of the stale files.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { VERSIONED_FILES } from './versions.ts';

interface Generated {
  /** Path relative to the root of the project. */
  readonly file: string;
  readonly make: () => Promise<string>;
}

const TYPESCRIPT = 'clients/typescript/src';
const PYTHON = 'clients/python/src/rookery';
const ZYGOTE = 'runtimes/python/rookery_zygote';

/** Generated files and the functions that make them. */
const GENERATED: readonly Generated[] = [
  { file: 'biome.json', make: async () => (await import('./import-rules.ts')).configurationOfBiome() },
  {
    file: 'docs/reference/configuration.md',
    make: async () => (await import('../src/config/document.ts')).configurationPage(),
  },
  { file: 'rookery.sample.yaml', make: async () => (await import('../src/config/document.ts')).sampleFile() },
  {
    file: 'docs/reference/metrics.md',
    make: async () => (await import('../src/telemetry/metric-table.ts')).metricsPage(),
  },
  { file: 'docs/reference/cli.md', make: cliPage },
  {
    file: 'docs/reference/rookery.schema.json',
    make: async () => `${JSON.stringify((await import('../src/cli/deploy/file.ts')).deploySchema(), null, 2)}\n`,
  },
  { file: 'docs/reference/errors.md', make: async () => (await import('./errors-page.ts')).errorsPage() },
  { file: 'docs/reference/limits.md', make: async () => (await import('./limits-page.ts')).limitsPage() },
  // A published package contains the licence beside its manifest.
  ...['clients/python', 'clients/typescript', 'runtimes/nodejs', 'runtimes/python'].map(directory => ({
    file: `${directory}/LICENSE`,
    make: async () => readFileSync(join(root, 'LICENSE'), 'utf8'),
  })),
  { file: 'THIRD-PARTY-NOTICES', make: async () => (await import('./notices.ts')).thirdPartyNotices() },
  { file: `${ZYGOTE}/container_filter.json`, make: containerFilter },
  { file: 'openapi/frontend.json', make: async () => (await import('./openapi.ts')).openApiDocument('frontend') },
  { file: 'openapi/meta.json', make: async () => (await import('./openapi.ts')).openApiDocument('meta') },
  { file: 'openapi/rookery.json', make: async () => (await import('./client-document.ts')).clientDocument() },
  // The types are made from openapi/rookery.json, so they come after it.
  { file: `${TYPESCRIPT}/generated.ts`, make: async () => clientTypes('typescriptTypes') },
  { file: `${PYTHON}/_hints.py`, make: async () => (await import('./client-sync.ts')).hintsModule() },
  { file: `${PYTHON}/types.py`, make: async () => clientTypes('pythonTypes') },
  ...[
    '__init__',
    'agents',
    'calls',
    'client',
    'code',
    'connection',
    'files',
    'functions',
    'jobs',
    'processes',
    'sandboxes',
    'terminal',
  ].map(name => ({
    file: `${PYTHON}/_sync/${name}.py`,
    make: async () => (await import('./client-sync.ts')).syncModule(name),
  })),
  // These files copy the version of package.json.
  ...VERSIONED_FILES,
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
    import('../src/cli/shared/io.ts'),
  ]);
  return cliPage({ io: processIo(new AbortController().signal), version: '', exitCode: 0 });
}

async function clientTypes(language: 'typescriptTypes' | 'pythonTypes'): Promise<string> {
  const types = await import('./client-types.ts');
  return types[language](types.readClientDocument());
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
