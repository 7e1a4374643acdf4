import type { Setting } from '../core/setting.ts';
import type { Config } from './config.ts';
import { SETTINGS } from './settings.ts';

/** A setting with its value in a run. */
export interface SettingInForce {
  readonly name: string;
  /** JSON value. A secret is `SECRET` if it is set, otherwise null. */
  readonly value: unknown;
  readonly is_default: boolean;
  /** `default`, or where it was given: `--port`, `environment variable ROOKERY_PORT`, `rookery.yaml:3`. */
  readonly source: string;
  readonly doc: string;
}

/** Replaces values that may not be shown. */
const SECRET = '********';

/** Returns each setting by its whole path. Masks secrets and settings that only yield keys. */
export function settingsInForce(config: Config): SettingInForce[] {
  return Object.entries(SETTINGS as Readonly<Record<string, Setting<unknown>>>).map(([name, setting]) => {
    const source = config.sources[name] ?? 'default';
    const { doc } = setting;
    if (setting.isSecret === true || name.startsWith('jwt.')) {
      const isGiven = source !== 'default';
      return { name, value: isGiven ? SECRET : null, is_default: !isGiven, source, doc };
    }
    const value = name === 'enable_func_token_auth' ? config.auth !== null : valueAt(config, name);
    return {
      name,
      value: masked(value),
      is_default: JSON.stringify(value) === JSON.stringify(setting.default),
      source,
      doc,
    };
  });
}

/** Matches up to the last `@`, as URL parsers do, because a password may contain one. */
const USER_OF_URL = /(?<=\b[a-z][a-z0-9+.-]*:\/\/)[^/?#\s]+(?=@)/gi;

/** Masks the names and passwords of URLs anywhere in a value. */
function masked(value: unknown): unknown {
  if (typeof value === 'string') return value.replace(USER_OF_URL, SECRET);
  if (Array.isArray(value)) return value.map(masked);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, masked(inner)]));
}

function valueAt(config: object, path: string): unknown {
  return (
    path.split('.').reduce<unknown>((place, name) => (place as Record<string, unknown> | undefined)?.[name], config) ??
    null
  );
}
