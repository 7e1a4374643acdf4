import { readFile } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import { isMap, isScalar, LineCounter, type Node, parseDocument } from 'yaml';
import type { Environment } from '../core/environment.ts';
import { messageOf } from '../core/error.ts';
import { nearest } from '../core/unknown-names.ts';
import { type Config, type Given, resolveConfig } from './config.ts';
import {
  CLIENT_VARIABLES,
  REMOVED_SETTINGS,
  SETTINGS,
  type SettingPath,
  STANDARD_VARIABLES,
  variableOf,
} from './settings.ts';

/** The command line's part of the configuration. */
export interface ConfigFlags {
  /** The YAML file; null: `ROOKERY_CONFIG`, or none. */
  readonly file: string | null;
  /** Flags of single settings (`--port 80`), by the path of their setting. They win over `sets`. */
  readonly flags: Readonly<Partial<Record<SettingPath, string>>>;
  /** `--set a.b=c`, in order. */
  readonly sets: readonly string[];
}

export const NO_FLAGS: ConfigFlags = { file: null, flags: {}, sets: [] };

/** Returns the environment of this process. No other code reads it. */
export function processEnvironment(): Environment {
  return { ...process.env };
}

/**
 * Returns the configuration from flags, environment, file and defaults, in this order of precedence. Fails
 * with a `ConfigError` that holds the problems of all sources.
 */
export async function loadConfig(flags: ConfigFlags, environment: Environment): Promise<Config> {
  const base = process.cwd();
  const file = flags.file ?? (environment.ROOKERY_CONFIG || null);
  const fromFile = file === null ? { given: [], problems: [] } : await readConfigFile(file);
  const fromEnvironment = readVariables(environment, base);
  const fromFlags = readFlags(flags, base);
  const sources = [fromFile, fromEnvironment, fromFlags];
  return resolveConfig(
    sources.flatMap(source => source.given),
    { environment, isRoot: process.getuid?.() === 0 },
    sources.flatMap(source => source.problems),
    file === null ? null : resolve(file),
  );
}

interface ConfigSource {
  readonly given: readonly Given[];
  readonly problems: readonly string[];
}

async function readConfigFile(file: string): Promise<ConfigSource> {
  let content: string;
  try {
    content = await readFile(file, 'utf8');
  } catch (error) {
    return { given: [], problems: [`The configuration file ${file} cannot be read (${messageOf(error)}).`] };
  }
  // The parser takes 30 ms to load, and most starts have no file.
  const { readYaml } = await import('./env.ts');
  return readYaml(content, basename(file), dirname(resolve(file)));
}

const PATH_OF_VARIABLE = new Map(
  [...Object.keys(SETTINGS), ...Object.keys(REMOVED_SETTINGS)].map(path => [variableOf(path), path] as const),
);

/** Switches of the project's own tests, which pass their environment to the services that they start. */
const TEST_PREFIX = 'ROOKERY_TEST_';

/**
 * Variables that the platform sets for code in its sandboxes. A service that starts in a sandbox ignores
 * them.
 */
const SANDBOX_VARIABLES = new Set(
  [
    'INSTANCE_ID',
    'TENANT',
    'FUNCTION',
    'VERSION',
    'CODE_PATH',
    'SESSION_CTX_ID',
    'RUNTIME_SOCKET',
    'RUNTIME_SECRET',
  ].map(name => `ROOKERY_${name}`),
);

function readVariables(environment: Environment, base: string): ConfigSource {
  const given = readStandardVariables(environment, base);
  const problems: string[] = [];
  for (const [name, value] of Object.entries(environment)) {
    // An empty variable counts as unset, which is the meaning of `NAME= command` and of compose files.
    if (!name.startsWith('ROOKERY_') || value === undefined || value === '') continue;
    if (name.startsWith(TEST_PREFIX) || isOfKubernetes(name, value) || Object.hasOwn(CLIENT_VARIABLES, name)) continue;
    if (SANDBOX_VARIABLES.has(name)) continue;
    const path = PATH_OF_VARIABLE.get(name);
    if (path !== undefined) {
      given.push({ path, value: { text: value }, where: `environment variable ${name}`, base });
      continue;
    }
    const near = nearest(name, [...PATH_OF_VARIABLE.keys(), ...Object.keys(CLIENT_VARIABLES)]);
    const hint = near === null ? 'See docs/reference/configuration.md for the names.' : `Did you mean ${near}?`;
    problems.push(`The environment variable ${name} is not a setting. ${hint}`);
  }
  return { given, problems };
}

/** Returns standard variables in reverse, because later entries win. */
function readStandardVariables(environment: Environment, base: string): Given[] {
  if (environment.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || environment.OTEL_TRACES_EXPORTER === 'none') return [];
  return STANDARD_VARIABLES.flatMap(([name, path, toOurs]) => {
    const value = environment[name];
    return value ? [{ path, value: { text: toOurs(value) }, where: `environment variable ${name}`, base }] : [];
  }).reverse();
}

/**
 * Returns true for variables such as `ROOKERY_PORT=tcp://…`, which Kubernetes sets in pods near a service
 * called `rookery…`.
 */
function isOfKubernetes(name: string, value: string): boolean {
  return /_SERVICE_(HOST|PORT)(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)/.test(name) || /^(tcp|udp|sctp):\/\//.test(value);
}

function readFlags({ flags, sets }: ConfigFlags, base: string): ConfigSource {
  const given: Given[] = [];
  const problems: string[] = [];
  for (const set of sets) {
    const at = set.indexOf('=');
    if (at < 1)
      problems.push(`--set takes a setting and its value, as in --set jwt.issuer=me, not ${JSON.stringify(set)}.`);
    else given.push({ path: set.slice(0, at), value: { text: set.slice(at + 1) }, where: '--set', base });
  }
  for (const [path, value] of Object.entries(flags)) {
    const flag = SETTINGS[path as SettingPath] as { flag?: string };
    const where = flag.flag?.split(' ')[0] ?? '--set';
    given.push({ path, value: { text: value }, where, base });
  }
  return { given, problems };
}

/**
 * Reads the settings in the text of a YAML file, each with its line. `jwt: {issuer: x}` and `jwt.issuer: x`
 * are the same. Problems are whole sentences: errors of the parser, and values that are not maps.
 */
export function readYaml(content: string, file: string, base: string): { given: Given[]; problems: string[] } {
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, uniqueKeys: true });
  if (document.errors.length > 0) {
    const problems = document.errors.map(error => {
      const line = lines.linePos(error.pos[0]).line;
      return `${file}:${line} is not YAML: ${error.message.split(/ at line |\n/)[0]}.`;
    });
    return { given: [], problems };
  }
  const given: Given[] = [];
  const problems: string[] = [];

  const isGroup = (path: string): boolean => Object.keys(SETTINGS).some(name => name.startsWith(`${path}.`));

  const walk = (node: Node | null, prefix: string): void => {
    if (node === null || (isScalar(node) && node.value === null)) return;
    if (!isMap(node)) {
      const what = prefix === '' ? 'the file' : prefix;
      problems.push(`${what} must be a map of settings (${file}:${lineOf(node, lines)}).`);
      return;
    }
    for (const pair of node.items) {
      const key = isScalar(pair.key) ? String(pair.key.value) : '';
      const path = prefix === '' ? key : `${prefix}.${key}`;
      const value = pair.value as Node | null;
      const where = `${file}:${lineOf(pair.key as Node, lines)}`;
      if (isGroup(path)) walk(value, path);
      else if (value !== null) {
        const yaml: unknown = value.toJS(document);
        if (yaml !== null || !(path in SETTINGS)) given.push({ path, value: { yaml }, where, base });
      } else if (!(path in SETTINGS)) given.push({ path, value: { yaml: null }, where, base });
    }
  };

  walk(document.contents as Node | null, '');
  return { given, problems };
}

function lineOf(node: Node | null, lines: LineCounter): number {
  return lines.linePos(node?.range?.[0] ?? 0).line;
}
