/**
 * Builds src/ to dist/ and dashboard/ to dist/dashboard: `npm run build`.
 * The result needs only Node.js and the production dependencies.
 */
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { build } from 'vite';
import { keepTwoBuilds } from './built-files.ts';
import { bin, ROOT, run } from './command.ts';
import { renderDocs } from './doc-pages.ts';
import { buildMissingNative } from './native.ts';

const DIST = join(ROOT, 'dist');
/** Names of the programs, and their files below `src/`. */
const PROGRAMS = { main: 'main.ts', 'write-program': 'server/write-program.ts' };
/**
 * Dependencies that the bundle does not contain. One has a native part beside it. Others are large, and load
 * only when a setting needs them.
 * The two compilers of the router's schemas never load (`src/http/entry.ts`).
 */
const SEPARATE = [
  '@fastify/ajv-compiler',
  '@fastify/fast-json-stringify-compiler',
  '@photostructure/sqlite',
  '@aws-sdk/client-s3',
  '@kubernetes/client-node',
  '@opentelemetry/exporter-trace-otlp-proto',
  '@opentelemetry/resources',
  '@opentelemetry/sdk-trace-base',
  'dockerode',
  'pg',
];

/**
 * Bundles each program and its dynamic imports with their dependencies into few files. Returns the names of
 * the files.
 * As separate files they number 1700, and loading those takes longer than the rest of a start.
 */
async function bundle(): Promise<readonly string[]> {
  const built = await build({
    configFile: false,
    root: ROOT,
    logLevel: 'warn',
    ssr: { target: 'node', noExternal: true, external: SEPARATE },
    build: {
      ssr: true,
      outDir: DIST,
      emptyOutDir: false,
      minify: false,
      target: 'es2023',
      rolldownOptions: {
        input: Object.fromEntries(Object.entries(PROGRAMS).map(([name, file]) => [name, join(ROOT, 'src', file)])),
        // All files are in one directory, so that each `import.meta.url` is a file in dist/.
        output: { entryFileNames: '[name].js', chunkFileNames: '[name]-[hash].js', minify: false },
      },
    },
  });
  if (!('output' in built)) throw new TypeError('one build was asked for');
  return built.output.map(({ fileName }) => fileName);
}

/** Compresses the pages below `directory`, so that the service does not compress them for each request. */
function compress(directory: string): void {
  for (const file of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (!/\.(html|js|css|svg)$/.test(file)) continue;
    const content = readFileSync(join(directory, file));
    writeFileSync(join(directory, `${file}.br`), brotliCompressSync(content));
    writeFileSync(join(directory, `${file}.gz`), gzipSync(content, { level: 9 }));
  }
}

/**
 * Writes dist/share: the manual page and the completion scripts, which packages install for `man` and shells.
 */
async function writeShared(): Promise<void> {
  const [{ Command }, { createWholeProgram }, { completionScript }, { manPage }, { processIo }, { VERSION }] =
    await Promise.all([
      import('commander'),
      import('../src/cli/program.ts'),
      import('../src/cli/completion.ts'),
      import('../src/cli/man-page.ts'),
      import('../src/cli/shared/io.ts'),
      import('../src/version.ts'),
    ]);
  const program = await createWholeProgram({
    io: processIo(new AbortController().signal),
    version: VERSION,
    exitCode: 0,
  });
  const share = join(DIST, 'share');
  mkdirSync(share, { recursive: true });
  writeFileSync(join(share, 'rookery.1'), manPage(program, VERSION, new Command()));
  for (const [shell, name] of [
    ['bash', 'rookery.bash'],
    ['zsh', '_rookery'],
    ['fish', 'rookery.fish'],
  ] as const) {
    writeFileSync(join(share, name), completionScript(shell, program));
  }
}

await buildMissingNative();
const [written, dashboard] = await Promise.all([
  bundle(),
  run(bin('vite'), ['build', '--logLevel', 'warn', '--config', 'dashboard/vite.config.ts']),
]);
if (dashboard.code === 0) compress(join(DIST, 'dashboard'));
renderDocs(join(ROOT, 'docs'), join(DIST, 'docs'));
compress(join(DIST, 'docs'));
keepTwoBuilds(DIST, written);
await writeShared();
chmodSync(join(DIST, 'main.js'), 0o755);
process.exitCode = dashboard.code;
