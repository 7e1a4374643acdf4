import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { type Setting, WrongValue } from '../core/setting.ts';
import { nearest } from '../core/unknown-names.ts';
import { type Auth, readAuth } from './auth.ts';
import { type ClusterIdentity, readCluster } from './cluster.ts';
import { contradictionsOf } from './contradictions.ts';
import { readSecretKeySettings } from './secret-keys.ts';
import { REMOVED_SETTINGS, SETTINGS, type SettingPath, type Values } from './settings.ts';
import { readStorageUrl } from './storage-url.ts';

type Head<P extends string> = P extends `${infer H}.${string}` ? H : P;

/** Nests a type: `{'a.b': T}` → `{a: {b: T}}`. */
type Nested<V> = {
  readonly [H in Head<keyof V & string>]: H extends keyof V
    ? V[H]
    : Nested<{ [P in keyof V as P extends `${H}.${infer Rest}` ? Rest : never]: V[P] }>;
};

/** The settings of a run, complete, checked and frozen. Paths are absolute. */
export type Config = Nested<Omit<Values, `jwt.${string}` | 'enable_func_token_auth'>> & {
  /** Verification of tokens, with its keys already read; null when authentication is off. */
  readonly auth: Auth | null;
  /** Identity of this replica, with its keys already read; null without `cluster.listen`. */
  readonly clusterIdentity: ClusterIdentity | null;
  /** The keys of secrets that a setting names, already read; null: no setting names any. */
  readonly secretKeys: readonly Uint8Array[] | null;
  /**
   * The configuration file and every path that a setting names. They belong to the service; no caller may
   * access them.
   */
  readonly ownPaths: readonly string[];
  /** The source of each given setting (`Given.where`), by its whole path. */
  readonly sources: Readonly<Record<string, string>>;
  /** Warnings: a sentence for each given setting that no longer has an effect. */
  readonly warnings: readonly string[];
};

/** A given value and its source, for the sentence about it. */
export interface Given {
  readonly path: string;
  /** A text comes from flags and the environment and is parsed as text; other values come from YAML. */
  readonly value: { readonly text: string } | { readonly yaml: unknown };
  /** `--port`, `environment variable ROOKERY_PORT`, `rookery.yaml:3`. */
  readonly where: string;
  /** Base directory of relative paths. */
  readonly base: string;
}

/** Reports all problems of the configuration, one sentence each. Exit code 78. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

/** Facts of the machine that the defaults need. */
export interface Machine {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly isRoot: boolean;
}

/**
 * Makes the configuration from given values over the defaults; later values win. Fails with a `ConfigError`
 * that reports `problems` of reading the sources and every problem found here.
 */
export async function resolveConfig(
  given: readonly Given[],
  machine: Machine,
  problems: readonly string[] = [],
  file: string | null = null,
): Promise<Config> {
  const found = [...problems];
  const values: Record<string, unknown> = {};
  const sources: Record<string, string> = {};
  const warnings: string[] = [];
  const isWrong = new Set<string>();
  for (const [settingPath, setting] of Object.entries(SETTINGS)) values[settingPath] = setting.default;

  for (const entry of given) {
    const setting: Setting<unknown> | undefined = Object.hasOwn(SETTINGS, entry.path)
      ? SETTINGS[entry.path as SettingPath]
      : undefined;
    if (setting === undefined) {
      if (Object.hasOwn(REMOVED_SETTINGS, entry.path)) warnings.push(removedSetting(entry));
      else found.push(unknownSetting(entry));
      continue;
    }
    try {
      values[entry.path] = readValue(setting, entry);
      sources[entry.path] = entry.where;
    } catch (error) {
      if (!(error instanceof WrongValue)) throw error;
      isWrong.add(entry.path);
      const not = setting.isSecret === true ? '' : `, not ${show(entry.value)}`;
      found.push(`${entry.path} must be ${error.message}${not} (${entry.where}).`);
    }
  }

  if (values.dataDir === '') values.dataDir = defaultDataDir(machine);
  const roles = values.roles as readonly string[];
  for (const entry of ['frontend', 'meta']) if (!roles.includes(entry)) values[`${entry}.enabled`] = false;
  const all = values as Values;
  found.push(...contradictionsOf(all, isWrong));
  const { auth, problems: authProblems } = await readAuth(all, isWrong);
  found.push(...authProblems);
  const storage = await readStorageUrl(all, isWrong);
  found.push(...storage.problems);
  const cluster = await readCluster(all, isWrong);
  found.push(...cluster.problems);
  const secrets = await readSecretKeySettings(all);
  found.push(...secrets.problems);
  if (found.length > 0) throw new ConfigError(found);
  return freeze({
    ...nest({ ...values, 'storage.url': storage.url, 'secrets.key': null }),
    auth,
    clusterIdentity: cluster.identity,
    secretKeys: secrets.keys,
    ownPaths: ownPathsOf(all, file),
    sources,
    warnings,
  }) as unknown as Config;
}

/**
 * Returns the paths of the service, including sockets in settings. Access to such a socket amounts to root,
 * or nearly.
 */
function ownPathsOf(values: Values, file: string | null): readonly string[] {
  const those = (is: (setting: Setting<unknown>) => boolean | undefined) =>
    Object.entries(SETTINGS).flatMap(([settingPath, setting]) =>
      is(setting) ? [values[settingPath as SettingPath]] : [],
    );
  const paths = those(setting => setting.isPath);
  const sockets = those(setting => setting.isSocket).map(url => /^unix:\/\/(\/.+)$/.exec(String(url))?.[1]);
  return [file, ...paths, ...sockets].filter(each => typeof each === 'string');
}

function readValue(setting: Setting<unknown>, entry: Given): unknown {
  const value = 'text' in entry.value ? setting.readText(entry.value.text) : setting.read(entry.value.yaml);
  return setting.isPath === true && typeof value === 'string' ? resolvePath(value, entry.base) : value;
}

function resolvePath(value: string, base: string): string {
  if (value === '~' || value.startsWith('~/')) return join(homedir(), value.slice(1));
  return resolve(base, value);
}

function unknownSetting(entry: Given): string {
  const near = nearest(entry.path, Object.keys(SETTINGS));
  const hint = near === null ? 'See docs/reference/configuration.md for the names.' : `Did you mean ${near}?`;
  return `${entry.path} is not a setting (${entry.where}). ${hint}`;
}

function removedSetting({ path, where }: Given): string {
  return `${path} was removed and has no effect (${where}). ${REMOVED_SETTINGS[path]}`;
}

function show(value: Given['value']): string {
  const shown = JSON.stringify('text' in value ? value.text : value.yaml) ?? 'undefined';
  return shown.length > 80 ? `${shown.slice(0, 79)}…` : shown;
}

/** Returns the default data directory of this user's service. */
export function defaultDataDir({ environment, isRoot }: Machine): string {
  if (isRoot) return '/var/lib/rookery';
  const xdg = environment.XDG_DATA_HOME;
  // The XDG specification: a path that is not absolute is ignored.
  if (xdg !== undefined && isAbsolute(xdg)) return join(xdg, 'rookery');
  return join(homedir(), '.local', 'share', 'rookery');
}

/**
 * Nests settings: `{'a.b': 1}` → `{a: {b: 1}}`. Omits settings that only `readAuth` needs, among them
 * secrets.
 */
function nest(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const nested: Record<string, unknown> = {};
  for (const [settingPath, value] of Object.entries(values)) {
    if (settingPath.startsWith('jwt.') || settingPath === 'enable_func_token_auth') continue;
    const names = settingPath.split('.');
    const last = names.pop() as string;
    let place = nested;
    for (const name of names) {
      place[name] ??= {};
      place = place[name] as Record<string, unknown>;
    }
    place[last] = value;
  }
  return nested;
}

/** Freezes a value deeply, except keys: bytes cannot be frozen. */
function freeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return value;
  for (const inner of Object.values(value)) freeze(inner);
  return Object.freeze(value);
}
