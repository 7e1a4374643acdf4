import { open, realpath } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { Environment } from '../core/environment.ts';
import { unavailable } from '../core/error.ts';
import type { MountSpec } from '../core/instance.ts';
import { execFile } from '../lib/child-process.ts';
import { realPathOf } from '../lib/path-lookup.ts';

const run = promisify(execFile);
const ASK_TIMEOUT_MS = 20_000;
const ELF = Buffer.from([0x7f, 0x45, 0x4c, 0x46]);

/** Indexes from which the tools install. */
export interface IndexSettings {
  /** URL of the Python index; `''`: as pip on this machine is configured. */
  readonly pythonIndex: string;
  /** URL of the npm registry; `''`: as npm on this machine is configured. */
  readonly npmRegistry: string;
}

/** Variables for pip and for TLS. No other variable of the server's environment reaches foreign code. */
const PIP_VARIABLES = new Set([
  ...['PIP_CERT', 'PIP_DEFAULT_TIMEOUT', 'PIP_EXTRA_INDEX_URL', 'PIP_INDEX_URL', 'PIP_PROXY', 'PIP_TRUSTED_HOST'],
  ...['SSL_CERT_DIR', 'SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'ALL_PROXY', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'],
]);
const NPM_VARIABLES = new Set([
  ...['NODE_EXTRA_CA_CERTS', 'SSL_CERT_DIR', 'SSL_CERT_FILE', 'ALL_PROXY', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'],
]);

/** Returns the variables of the server's environment that configure pip's index. */
export function pipEnvironment(environment: Environment): Record<string, string> {
  return chosen(environment, PIP_VARIABLES);
}

function chosen(environment: Environment, names: ReadonlySet<string>): Record<string, string> {
  const found = Object.entries(environment).filter(([name]) => names.has(name.toUpperCase()));
  return Object.fromEntries(found.filter((entry): entry is [string, string] => entry[1] !== undefined));
}

/** Returns the environment for pip and uv, including pip's configuration files, which uv does not read. */
export async function pythonIndexEnvironment(
  python: string,
  environment: Environment,
  { pythonIndex }: IndexSettings,
): Promise<Record<string, string>> {
  const configured = pythonIndex === '' ? await pipConfiguration(python, environment) : {};
  const own = pipEnvironment(environment);
  const pip: Record<string, string> = { ...configured, ...own };
  if (pythonIndex !== '') {
    pip.PIP_INDEX_URL = pythonIndex;
    delete pip.PIP_EXTRA_INDEX_URL;
    if (pythonIndex.startsWith('http://')) pip.PIP_TRUSTED_HOST = new URL(pythonIndex).hostname;
  }
  const { PIP_INDEX_URL: index, PIP_EXTRA_INDEX_URL: extra, PIP_CERT: cert, PIP_TRUSTED_HOST: trusted } = pip;
  return {
    ...pip,
    ...(index && { UV_DEFAULT_INDEX: index }),
    ...(extra && { UV_INDEX: extra }),
    ...(trusted && { UV_INSECURE_HOST: trusted }),
    ...(cert && !pip.SSL_CERT_FILE && { SSL_CERT_FILE: cert }),
  };
}

const PIP_KEYS = ['index-url', 'extra-index-url', 'trusted-host', 'cert', 'proxy'];

const pipConfigurations = new Map<string, Promise<Record<string, string>>>();

/**
 * Returns pip's configuration from `pip config list`, read once; empty if pip is missing or does not support
 * the command.
 */
function pipConfiguration(python: string, environment: Environment): Promise<Record<string, string>> {
  return remembered(pipConfigurations, python, () => askPip(python, environment));
}

/**
 * Returns the cached answer of a program: asking takes longer than starting a sandbox. A failure is not
 * cached.
 */
function remembered<T>(known: Map<string, Promise<T>>, program: string, ask: () => Promise<T>): Promise<T> {
  let asking = known.get(program);
  if (asking === undefined) {
    asking = ask();
    known.set(program, asking);
    asking.catch(() => known.delete(program));
  }
  return asking;
}

async function askPip(python: string, environment: Environment): Promise<Record<string, string>> {
  const { PATH, HOME, XDG_CONFIG_HOME, PIP_CONFIG_FILE } = environment;
  const env = { PATH, HOME, XDG_CONFIG_HOME, PIP_CONFIG_FILE };
  const asked = await run(python, ['-m', 'pip', 'config', 'list'], { timeout: ASK_TIMEOUT_MS, env, cwd: '/' }).catch(
    (error: unknown) => noAnswer(error, 'pip'),
  );
  const found: Record<string, string> = {};
  for (const line of asked.stdout.split('\n')) {
    const [, key = '', value = ''] = /^(?:global|install)\.([a-z-]+)='(.*)'$/.exec(line) ?? [];
    if (PIP_KEYS.includes(key))
      found[`PIP_${key.toUpperCase().replaceAll('-', '_')}`] = value.replaceAll('\\n', ' ').trim();
  }
  return found;
}

/** npm for one Node.js installation. */
export interface Npm {
  /** File that Node.js runs. */
  readonly cli: string;
  readonly mounts: readonly MountSpec[];
  readonly env: Readonly<Record<string, string>>;
}

/** Returns the npm in the directory of this Node.js, else the first on the PATH; null if there is none. */
export async function findNpm(
  node: string,
  environment: Environment,
  { npmRegistry }: IndexSettings,
): Promise<Npm | null> {
  const directories = [dirname(node), ...(environment.PATH ?? '').split(delimiter).filter(entry => entry !== '')];
  for (const directory of directories) {
    const cli = await realpath(join(directory, 'npm')).catch(() => null);
    if (cli === null || !cli.endsWith('.js')) continue;
    const home = dirname(dirname(cli));
    const registry = npmRegistry || (await npmRegistryOf(node, cli, environment));
    const paths = [node, home].filter(path => !path.startsWith('/usr/'));
    return {
      cli,
      mounts: paths.map(path => ({ source: realPathOf(path), target: path, readonly: true })),
      env: { ...chosen(environment, NPM_VARIABLES), ...(registry === '' ? {} : { npm_config_registry: registry }) },
    };
  }
  return null;
}

/** Returns the environment for pip, uv and npm in a sandbox that uses the host's `python3` and `npm`. */
export async function indexEnvironment(
  environment: Environment,
  settings: IndexSettings,
): Promise<Record<string, string>> {
  const [python, npm] = await Promise.all([
    pythonIndexEnvironment('python3', environment, settings),
    // Commands that do not use npm work without it.
    findNpm('/usr/bin/node', environment, settings).catch(() => null),
  ]);
  return { ...python, ...npm?.env };
}

const npmRegistries = new Map<string, Promise<string>>();

function npmRegistryOf(node: string, cli: string, environment: Environment): Promise<string> {
  return remembered(npmRegistries, cli, () => askNpm(node, cli, environment));
}

/**
 * Returns an empty answer for a tool without the command. Fails with `unavailable` after a timeout, which is
 * not cached.
 */
function noAnswer(error: unknown, tool: string): { readonly stdout: string } {
  if ((error as { readonly killed?: boolean }).killed !== true) return { stdout: '' };
  throw unavailable(`${tool} did not report its configuration in time`, { cause: error });
}

async function askNpm(node: string, cli: string, environment: Environment): Promise<string> {
  const asked = await run(node, [cli, 'config', 'get', 'registry'], {
    timeout: ASK_TIMEOUT_MS,
    // npm on Node.js 22.8 and newer otherwise leaves a directory of compiled code in the temporary directory.
    env: { ...environment, NODE_DISABLE_COMPILE_CACHE: '1' },
    cwd: '/',
  }).catch((error: unknown) => noAnswer(error, 'npm'));
  return /^https?:\/\/\S+$/m.exec(asked.stdout)?.[0] ?? '';
}

/** Returns the uv program on the PATH; null if there is none. The shim of a version manager is ignored. */
export async function findUv({ PATH = '' }: Environment): Promise<string | null> {
  for (const directory of PATH.split(delimiter).filter(entry => entry.startsWith('/'))) {
    const path = await realpath(join(directory, 'uv')).catch(() => null);
    if (path !== null && (await isProgram(path))) return path;
  }
  return null;
}

async function isProgram(path: string): Promise<boolean> {
  const file = await open(path).catch(() => null);
  try {
    const start = Buffer.alloc(ELF.length);
    await file?.read(start, 0, ELF.length, 0);
    return start.equals(ELF);
  } catch {
    return false;
  } finally {
    await file?.close();
  }
}
