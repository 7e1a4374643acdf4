/** `npm run build`: src/ → dist/ and dashboard/ → dist/dashboard, which need nothing but Node and the production dependencies. */
import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { build } from 'vite';
import { keepTwoBuilds } from './built-files.ts';
import { bin, ROOT, run } from './command.ts';
import { buildMissingNative } from './native.ts';

const DIST = join(ROOT, 'dist');
const PROGRAMS = ['main', 'write-program'];
/**
 * Dependencies that stay files of their own: one has a native part beside it, others are large and load when a setting wants them, and the compilers
 * of the router's schemas never load (`src/http/entry.ts`).
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
 * Each program and what it imports late as few files with their dependencies in them: as files of their own they are 1700, and loading
 * those takes longer than all else that a start does. Returns the names of the files.
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
        input: Object.fromEntries(PROGRAMS.map(name => [name, join(ROOT, 'src', `${name}.ts`)])),
        // In one directory: `import.meta.url` of each is a file in dist/.
        output: { entryFileNames: '[name].js', chunkFileNames: '[name]-[hash].js', minify: false },
      },
    },
  });
  if (!('output' in built)) throw new TypeError('one build was asked for');
  return built.output.map(({ fileName }) => fileName);
}

/** Packed once here, so that the service packs nothing. */
function compress(): void {
  const directory = join(DIST, 'dashboard');
  for (const file of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (!/\.(html|js|css|svg)$/.test(file)) continue;
    const content = readFileSync(join(directory, file));
    writeFileSync(join(directory, `${file}.br`), brotliCompressSync(content));
    writeFileSync(join(directory, `${file}.gz`), gzipSync(content, { level: 9 }));
  }
}

await buildMissingNative();
const [written, dashboard] = await Promise.all([
  bundle(),
  run(bin('vite'), ['build', '--logLevel', 'warn', '--config', 'dashboard/vite.config.ts']),
]);
if (dashboard.code === 0) compress();
keepTwoBuilds(DIST, written);
chmodSync(join(DIST, 'main.js'), 0o755);
process.exitCode = dashboard.code;
