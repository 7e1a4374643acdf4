import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bin, ROOT, run } from './command.ts';

/** Paths that the test file of each folder imports. RULES names those that ARCHITECTURE.md allows. */
const TARGETS = [
  ...['core/x.ts', 'lib/x.ts', 'telemetry/x.ts', 'config/x.ts', 'storage/x.ts', 'registry/x.ts', 'instances/x.ts'],
  ...[
    'agents/x.ts',
    'functions/x.ts',
    'jobs/x.ts',
    'events/x.ts',
    'http/x.ts',
    'api/x.ts',
    'code/x.ts',
    'data-dir/x.ts',
    'object-store/x.ts',
    'cli/x.ts',
    'server/server.ts',
  ],
  ...['runtime/call.ts', 'runtime/channel.ts', 'runtime/protocol.ts', 'runtime/executors.ts', 'runtime/frames.ts'],
  ...['sandbox/driver.ts', 'sandbox/drivers.ts', 'sandbox/docker/definition.ts'],
  ...['fastify', 'kysely', 'dockerode', '@kubernetes/client-node'],
];
const BASE = ['core/x.ts', 'lib/x.ts'];
const INSTANCES = [
  ...[...BASE, 'storage/x.ts', 'instances/x.ts', 'sandbox/driver.ts'],
  ...['runtime/call.ts', 'runtime/channel.ts', 'runtime/protocol.ts', 'runtime/executors.ts'],
];
const SERVICE = [
  ...[...BASE, 'telemetry/x.ts', 'storage/x.ts', 'object-store/x.ts', 'registry/x.ts', 'instances/x.ts', 'code/x.ts'],
  ...['sandbox/driver.ts', 'runtime/call.ts', 'runtime/protocol.ts'],
];
const ENTRY = [
  ...[
    ...BASE,
    'telemetry/x.ts',
    'http/x.ts',
    'registry/x.ts',
    'code/x.ts',
    'agents/x.ts',
    'functions/x.ts',
    'jobs/x.ts',
  ],
  ...['events/x.ts', 'sandbox/driver.ts', 'runtime/call.ts', 'fastify'],
];
const RULES: Readonly<Record<string, readonly string[]>> = {
  'core/file.ts': [],
  'lib/file.ts': [],
  'telemetry/file.ts': BASE,
  'config/file.ts': BASE,
  'data-dir/file.ts': [...BASE, 'kysely'],
  'object-store/file.ts': [...BASE, 'kysely'],
  'storage/file.ts': [...BASE, 'data-dir/x.ts', 'kysely'],
  'storage/migrations/file.ts': [...BASE, 'data-dir/x.ts', 'kysely'],
  'code/file.ts': [...BASE, 'storage/x.ts', 'object-store/x.ts'],
  'runtime/file.ts': [...BASE, 'telemetry/x.ts'],
  'sandbox/file.ts': [...BASE, 'telemetry/x.ts'],
  'sandbox/docker/file.ts': [...BASE, 'telemetry/x.ts', 'dockerode', '@kubernetes/client-node'],
  'http/file.ts': [...BASE, 'telemetry/x.ts', 'fastify'],
  'http/access/file.ts': [...BASE, 'telemetry/x.ts', 'fastify'],
  'registry/file.ts': [...BASE, 'storage/x.ts'],
  'cluster/file.ts': [...BASE, 'telemetry/x.ts', 'storage/x.ts', 'http/x.ts'],
  'instances/file.ts': INSTANCES,
  'agents/file.ts': INSTANCES,
  'functions/file.ts': SERVICE,
  'jobs/file.ts': SERVICE,
  'events/file.ts': [...BASE, 'instances/x.ts', 'jobs/x.ts'],
  'api/file.ts': ENTRY,
  'api/agents/file.ts': ENTRY,
  'cli/file.ts': [...BASE, 'config/x.ts'],
  'cli/agent/file.ts': [...BASE, 'config/x.ts'],
};
/** Returns true if the target is in the file's own folder, where all imports are allowed. */
const isOwn = (file: string, target: string) => target.includes('/') && file.split('/')[0] === target.split('/')[0];

let scratch: string;
const forbidden = new Map<string, Set<string>>();

interface Report {
  readonly diagnostics: readonly {
    readonly category: string;
    readonly location: { readonly path: string; readonly start: { readonly line: number } };
  }[];
}

beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'rookery-rules-'));
  const config = JSON.parse(readFileSync(join(ROOT, 'biome.json'), 'utf8')) as Record<string, unknown>;
  writeFileSync(join(scratch, 'biome.json'), JSON.stringify({ ...config, vcs: { enabled: false } }));
  for (const file of Object.keys(RULES)) {
    const up = '../'.repeat(file.split('/').length - 1);
    const lines = TARGETS.map((target, index) => {
      const isOurs = target.endsWith('.ts');
      return `export type { T${index} } from '${isOurs ? up : ''}${target}';`;
    });
    mkdirSync(dirname(join(scratch, 'src', file)), { recursive: true });
    writeFileSync(join(scratch, 'src', file), `${lines.join('\n')}\n`);
  }
  for (const { location } of await lint('style/noRestrictedImports')) {
    const file = location.path.replace(/^src\//, '');
    const found = forbidden.get(file) ?? new Set<string>();
    forbidden.set(file, found.add(TARGETS[location.start.line - 1] ?? ''));
  }
});

async function lint(rule: string): Promise<Report['diagnostics']> {
  const args = ['lint', '--max-diagnostics=none', '--reporter=json', '.'];
  const { output } = await run(bin('biome'), args, { cwd: scratch, capture: true });
  const json = output.split('\n').find(line => line.startsWith('{')) ?? '{"diagnostics":[]}';
  return (JSON.parse(json) as Report).diagnostics.filter(({ category }) => category === `lint/${rule}`);
}

afterAll(() => rmSync(scratch, { recursive: true, force: true }));

test.each(Object.entries(RULES))('%s may import only what the architecture allows', (file, allowed) => {
  const seen = TARGETS.filter(target => !isOwn(file, target) && !forbidden.get(file)?.has(target));
  expect(seen.sort()).toEqual(allowed.filter(target => !isOwn(file, target)).sort());
});

test('the linter refuses a read of process.env outside of config/ and tests', async () => {
  const readers = ['core', 'lib', 'sandbox/docker', 'runtime', 'cli', 'config'].map(
    folder => `src/${folder}/reader.ts`,
  );
  const inTests = 'src/lib/reader.test.ts';
  for (const file of [...readers, 'src/reader.ts', inTests]) {
    mkdirSync(dirname(join(scratch, file)), { recursive: true });
    writeFileSync(join(scratch, file), "export const a = process.env.PATH;\nexport const b = process.env['HOME'];\n");
  }
  const found = (await lint('style/noProcessEnv')).map(({ location }) => `${location.path}:${location.start.line}`);
  const refused = ['src/reader.ts', ...readers].filter(file => !file.startsWith('src/config/'));
  expect(found.sort()).toEqual(refused.flatMap(file => [`${file}:1`, `${file}:2`]).sort());
});
