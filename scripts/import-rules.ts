import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bin, ROOT } from './command.ts';

/** Imports from the rest of `src/` that the files of some folders may use. */
interface ImportRule {
  /**
   * Globs below `src/`. All files that match are at the same depth, or use relative paths no longer than
   * `up`.
   */
  readonly files: readonly string[];
  /** Start of a path to another folder of `src/`. */
  readonly up: '../' | '../../';
  /**
   * Folders (`core/`) and files (`sandbox/driver.ts`) that these files may import. Their own folder is always
   * allowed.
   */
  readonly may: readonly string[];
  /** Import paths as written in these files, for rules that `may` cannot express. */
  readonly mayWrite?: readonly string[];
  readonly message: string;
  /** Libraries that these files may use, and other files may not. */
  readonly uses?: readonly Library[];
}

type Library = keyof typeof LIBRARIES;

/** Libraries that only some folders may use, and the message for all other folders. */
const LIBRARIES = {
  fastify: [['fastify', 'fastify/**', '@fastify/**'], 'Fastify stays in http/ and api/.'],
  sql: [['kysely', 'kysely/**', '@photostructure/sqlite', 'pg'], 'SQL stays in storage/ and data-dir/.'],
  docker: [['dockerode'], 'Docker stays in sandbox/docker/.'],
  kubernetes: [['@kubernetes/**'], 'Kubernetes stays in sandbox/kubernetes/.'],
  children: [
    ['node:child_process'],
    'lib/child-process.ts starts children, without the priority of the serving thread.',
  ],
} as const;

const DRIVER_CONTRACTS = ['../access.ts', '../files.ts', '../driver.ts', '../driver-definition.ts', '../pools.ts'];
const INSTANCE_CONTRACTS = [
  'sandbox/access.ts',
  'sandbox/files.ts',
  'sandbox/driver.ts',
  'runtime/call.ts',
  'runtime/protocol.ts',
];
const INSTANCES = [...INSTANCE_CONTRACTS, 'templates/', 'runtime/channel.ts', 'runtime/executors.ts'];
const SERVICE = ['core/', 'lib/', 'telemetry/', 'storage/', 'object-store/', 'registry/', 'instances/', 'code/'];
const ENTRY = [
  'core/',
  'lib/',
  'telemetry/',
  'http/',
  'registry/',
  'code/',
  'agents/',
  'functions/',
  'jobs/',
  'builds/',
  'events/',
  'history/',
  'templates/',
];
const ENTRY_CONTRACTS = ['sandbox/access.ts', 'sandbox/files.ts', 'sandbox/driver.ts', 'runtime/call.ts'];
/** Commands that do not call a service over HTTP: they start one, or work on a data directory. */
const LOCAL_COMMANDS = ['serve', 'data-dir', 'machine-stop', 'upgrade'];

/** The code archive, ignore rules and log readers, which the command line shares with the client package. */
const CLIENT = '../clients/typescript/src/';
const COMMANDS = ['core/', 'lib/', 'config/', 'doctor/', 'explain/', CLIENT];

const RULES: readonly ImportRule[] = [
  rule(['core/**'], [], { message: 'core/ imports no other folder: it is vocabulary and rules without I/O.' }),
  rule(['lib/**'], ['core/error.ts', 'core/limits.ts'], { uses: ['children'] }),
  rule(['telemetry/**', 'explain/**'], ['core/', 'lib/']),
  rule(['config/**'], ['core/', 'lib/', 'sandbox/definitions.ts']),
  rule(['data-dir/**', 'object-store/**'], ['core/', 'lib/'], { uses: ['sql'] }),
  rule(['storage/*.ts'], ['core/', 'lib/', 'data-dir/'], { uses: ['sql'] }),
  rule(['storage/*/**'], ['core/', 'lib/', 'data-dir/'], { up: '../../', uses: ['sql'] }),
  rule(['code/**'], ['core/', 'lib/', 'storage/', 'object-store/']),
  rule(['runtime/**'], ['core/', 'lib/', 'telemetry/']),
  rule(['sandbox/*.ts'], ['core/', 'lib/', 'telemetry/']),
  rule(['sandbox/*/**'], [], {
    mayWrite: ['../../core/**', '../../lib/**', '../../telemetry/**', '../host/**', ...DRIVER_CONTRACTS],
    message:
      'A driver imports core/, lib/, telemetry/, its contracts and sandbox/host/, and neither another driver nor the runtime protocol.',
    uses: ['docker', 'kubernetes'],
  }),
  rule(['cluster/**'], ['core/', 'lib/', 'telemetry/', 'storage/', 'http/']),
  rule(['registry/**'], ['core/', 'lib/', 'storage/']),
  rule(['templates/**'], ['core/', 'lib/', 'sandbox/access.ts']),
  rule(['pools/**'], ['core/', 'lib/', 'sandbox/pools.ts']),
  rule(['instances/**', 'agents/**'], ['core/', 'lib/', 'storage/', 'instances/', ...INSTANCES]),
  rule(['builds/**'], ['core/', 'lib/', 'instances/', 'sandbox/driver.ts']),
  rule(['functions/*.ts', 'jobs/*.ts'], [...SERVICE, 'builds/', ...INSTANCE_CONTRACTS]),
  rule(['events/**'], ['core/', 'lib/', 'instances/', 'jobs/']),
  rule(['history/**'], ['core/', 'lib/', 'storage/']),
  rule(['http/*.ts'], ['core/', 'lib/', 'telemetry/'], { uses: ['fastify'] }),
  rule(['http/*/**'], ['core/', 'lib/', 'telemetry/'], { up: '../../', uses: ['fastify'] }),
  rule(['api/*.ts'], [...ENTRY, ...ENTRY_CONTRACTS], { uses: ['fastify'] }),
  rule(['api/*/**'], [...ENTRY, ...ENTRY_CONTRACTS], { up: '../../', uses: ['fastify'] }),
  rule(['cli/*.ts'], COMMANDS, { uses: ['children'] }),
  rule(['cli/*/**', ...LOCAL_COMMANDS.map(name => `!cli/serve/${name}.ts`)], COMMANDS, {
    up: '../../',
    message: `cli/ speaks HTTP: only ${LOCAL_COMMANDS.join(', ')} may import more than ${COMMANDS.join(', ')}.`,
    uses: ['children'],
  }),
];

function rule(files: readonly string[], may: readonly string[], more: Partial<ImportRule> = {}): ImportRule {
  const folders = [...new Set(files.map(glob => glob.replace(/\/.*/, '/')))].join(' and ');
  return {
    files,
    may,
    up: '../',
    message: `${folders} may import ${may.join(', ')} and nothing else of src/.`,
    ...more,
  };
}

/** Returns the formatted `biome.json` with its import rules replaced by those of this table. */
export function configurationOfBiome(): string {
  const file = join(ROOT, 'biome.json');
  const configuration = JSON.parse(readFileSync(file, 'utf8')) as { overrides: readonly object[] };
  const others = configuration.overrides.filter(each => !JSON.stringify(each).includes('noRestrictedImports'));
  const overrides = [...others, ...RULES.map(overrideOf)];
  const formatted = spawnSync(bin('biome'), ['format', '--stdin-file-path=biome.json'], {
    input: JSON.stringify({ ...configuration, overrides }),
    encoding: 'utf8',
    cwd: ROOT,
  });
  if (formatted.status !== 0) throw new Error(`biome cannot format biome.json: ${formatted.stderr}`);
  return formatted.stdout;
}

function overrideOf({ files, up, may, mayWrite, message, uses = [] }: ImportRule): object {
  const written = mayWrite ?? may.map(path => `${up}${path.endsWith('/') ? `${path}**` : path}`);
  const own = { group: [`${mayWrite === undefined ? up : '../'}**`, ...written.map(path => `!${path}`)], message };
  const libraries = Object.entries(LIBRARIES)
    .filter(([name]) => !uses.includes(name as Library))
    .map(([, [group, text]]) => ({ group, message: text }));
  const restricted = { level: 'error', options: { patterns: [own, ...libraries] } };
  return {
    includes: [...files.map(glob => (glob.startsWith('!') ? `!src/${glob.slice(1)}` : `src/${glob}`)), '!**/*.test.ts'],
    linter: { rules: { style: { noRestrictedImports: restricted } } },
  };
}
