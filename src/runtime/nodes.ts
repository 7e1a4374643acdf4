import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Environment } from '../core/environment.ts';
import { execFileSync } from '../lib/child-process.ts';

/** The oldest major version that the Node runtime supports. */
export const OLDEST_NODE = 20;
const ASK_TIMEOUT_MS = 5_000;
const ASK = 'process.stdout.write(process.versions.node + " " + process.execPath)';
const RUNTIME = ['runtimes', 'nodejs', 'lib', 'main.js'];
const WELL_KNOWN = ['/usr/local/bin', '/usr/bin', '/opt/node/bin', '/opt/homebrew/bin'];

export interface Node {
  /** Full version, for example `22.18.0`. */
  readonly version: string;
  /** `process.execPath`, which is never the shim of a version manager. */
  readonly path: string;
}

/** The answer of each program, valid while the file is unchanged. */
const asked = new Map<string, { readonly changedMs: number; readonly node: Node | null }>();

/**
 * Returns the Node of this major version on this host, or the reason there is none; the newest for `''`.
 * Searches `NODE_HOME_<version>`, the PATH, the usual places, nvm's directory, and last the Node that runs
 * this service.
 */
export function findNode(version: string, environment: Environment): Node | { readonly problem: string } {
  const found = lookForNode(version, candidates(environment, WELL_KNOWN));
  if (found !== null) return found;
  const wanted = version === '' ? `Node.js ${OLDEST_NODE} or newer` : `Node.js ${version}`;
  const variable = version === '' ? `NODE_HOME_${OLDEST_NODE}` : `NODE_HOME_${version}`;
  return { problem: `no ${wanted} was found: put it on the PATH of the service, or name its directory in ${variable}` };
}

/** Returns the first of these programs that has the major version; the newest for `''`. */
export function lookForNode(version: string, programs: readonly string[]): Node | null {
  let newest: Node | null = null;
  for (const program of programs) {
    const node = ask(program);
    if (node === null) continue;
    if (majorOf(node) === Number(version || -1)) return node;
    const isNewer = newest === null || compare(node.version, newest.version) > 0;
    if (version === '' && majorOf(node) >= OLDEST_NODE && isNewer) newest = node;
  }
  return newest;
}

/** Returns every place where a Node may be, explicitly configured places first. */
export function candidates(environment: Environment, wellKnown: readonly string[]): readonly string[] {
  const homes = Object.keys(environment)
    .filter(name => /^NODE_HOME_\d+$/.test(name))
    .map(name => environment[name] ?? '')
    .filter(home => home !== '');
  const nvm = join(environment.NVM_DIR || join(environment.HOME || '/root', '.nvm'), 'versions', 'node');
  const directories = [
    ...homes.map(home => join(home, 'bin')),
    ...(environment.PATH ?? '').split(delimiter).filter(directory => directory !== ''),
    ...wellKnown,
    ...list(nvm).map(name => join(nvm, name, 'bin')),
  ];
  return [...new Set([...directories.map(directory => join(directory, 'node')), process.execPath])].filter(existsSync);
}

export interface NodeRuntime {
  /** The program's first file. */
  readonly main: string;
  /** Directories that the program must see: its own and that of the TypeScript library. */
  readonly directories: readonly string[];
}

let runtime: NodeRuntime | undefined;

/** Returns the runtime's files in this installation, or a sentence that they are missing. */
export function findNodeRuntime(from: string = dirname(fileURLToPath(import.meta.url))): NodeRuntime | string {
  if (runtime !== undefined) return runtime;
  for (let directory = from; ; directory = dirname(directory)) {
    const main = join(directory, ...RUNTIME);
    if (existsSync(main)) {
      // The resolved path is `<package>/dist/index.js`.
      const typescript = createRequire(main).resolve('amaro');
      runtime = { main, directories: [dirname(main), dirname(dirname(typescript))] };
      return runtime;
    }
    if (directory === dirname(directory)) return `${join(...RUNTIME)} does not exist: the installation is not complete`;
  }
}

/** Returns the file of the client of the Lambda Runtime API, or null if the installation is not complete. */
export function findLambdaClient(): string | null {
  const files = findNodeRuntime();
  return typeof files === 'string' ? null : join(dirname(files.main), 'lambda.cjs');
}

function ask(program: string): Node | null {
  const changedMs = statSync(program, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const known = asked.get(program);
  if (known?.changedMs === changedMs) return known.node;
  const node = start(program);
  asked.set(program, { changedMs, node });
  return node;
}

function start(program: string): Node | null {
  try {
    const said = execFileSync(program, ['-e', ASK], {
      timeout: ASK_TIMEOUT_MS,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      env: {},
    });
    const [, version = '', path = ''] = /^(\d+\.\d+\.\d+)\S* (\/.+)$/.exec(said) ?? [];
    return version === '' ? null : { version, path: realpathSync(path) };
  } catch {
    return null;
  }
}

function majorOf({ version }: Node): number {
  return Number.parseInt(version, 10);
}

function compare(left: string, right: string): number {
  const [a, b] = [left, right].map(version => version.split('.').map(Number));
  for (let index = 0; index < 3; index++) {
    const difference = (a?.[index] ?? 0) - (b?.[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function list(directory: string): readonly string[] {
  try {
    return readdirSync(directory).toSorted();
  } catch {
    return [];
  }
}
