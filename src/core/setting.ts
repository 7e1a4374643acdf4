import type { Kind } from './kind.ts';

/**
 * A kind of setting. `read` reads a value from YAML; `readText` reads a text from a flag or an environment
 * variable. Both return the value, or throw a `WrongValue` whose text completes "<path> must be …".
 */
export interface Setting<T> {
  /** Name of the type in the documentation: `number of milliseconds`, `list of texts`. */
  readonly type: string;
  readonly default: T;
  /** The default in the documentation, where the value itself says too little or depends on the machine. */
  readonly defaultText?: string;
  /** The description, in one or two sentences: the effect of the setting, and of another value. */
  readonly doc: string;
  /** A value in the form of the YAML file. */
  readonly example: string;
  /**
   * The command line flag of `serve` in commander's form (`--port <port>`). `--set` sets settings without a
   * flag.
   */
  readonly flag?: string;
  /**
   * True for a file path. A relative path starts at the configuration file, or at the working directory for
   * other sources.
   */
  readonly isPath?: boolean;
  /** True for a URL that may name a socket. A client of that socket's server is root, or nearly. */
  readonly isSocket?: boolean;
  /** True for a value that is never printed. */
  readonly isSecret?: boolean;
  read(value: unknown): T;
  readText(text: string): T;
}

/** The values of settings by their names. */
export type SettingValues<S> = { readonly [P in keyof S]: S[P] extends { read(value: unknown): infer T } ? T : never };

/** Reports a wrong value. The message completes the sentence "<path> must be …". */
export class WrongValue extends Error {
  override readonly name = 'WrongValue';
}

/** Options of every constructor below, in addition to those of its kind. */
interface Described<T> {
  readonly default: T;
  readonly defaultText?: string;
  readonly doc: string;
  readonly example: string;
  readonly flag?: string;
  readonly isSocket?: boolean;
}

export function text(
  options: Described<string> & { pattern?: RegExp; shape?: string; isSecret?: boolean },
): Setting<string> {
  const shape = options.shape ?? 'a text that is not empty';
  const pattern = options.pattern ?? /^[^\s](.*[^\s])?$/s;
  const read = (value: unknown): string => {
    if (typeof value !== 'string' || !pattern.test(value)) throw new WrongValue(shape);
    return value;
  };
  return { type: 'text', isSecret: options.isSecret ?? false, ...described(options), read, readText: read };
}

/** A text that may be absent (`null`). */
export function optionalText(
  options: Described<null> & { pattern?: RegExp; shape?: string; isSecret?: boolean },
): Setting<string | null> {
  const { shape = 'a text that is not empty', pattern = /./s } = options;
  const read = (value: unknown): string => {
    if (typeof value !== 'string' || !pattern.test(value)) throw new WrongValue(shape);
    return value;
  };
  return { type: 'text', isSecret: options.isSecret ?? false, ...described(options), read, readText: read };
}

export function path(options: Described<string>): Setting<string> {
  return { type: 'path', isPath: true, ...described(options), read: readPath, readText: readPath };
}

export function optionalPath(options: Described<null>): Setting<string | null> {
  return { type: 'path', isPath: true, ...described(options), read: readPath, readText: readPath };
}

/** A whole number from `min` to `max`. `unit` is part of the documentation and of the setting's name. */
export function integer(options: Described<number> & { min: number; max: number; unit?: string }): Setting<number> {
  const shape = `a whole number from ${options.min} to ${options.max}`;
  const read = (value: unknown): number => {
    if (!Number.isInteger(value) || (value as number) < options.min || (value as number) > options.max) {
      throw new WrongValue(shape);
    }
    return value as number;
  };
  return {
    type: options.unit === undefined ? 'whole number' : `whole number of ${options.unit}`,
    ...described(options),
    read,
    readText: given => read(/^-?\d{1,15}$/.test(given) ? Number(given) : undefined),
  };
}

export function boolean(options: Described<boolean>): Setting<boolean> {
  return {
    type: 'true or false',
    ...described(options),
    read: value => {
      if (typeof value !== 'boolean') throw new WrongValue('true or false');
      return value;
    },
    readText: given => {
      if (/^(true|1|yes|on)$/i.test(given)) return true;
      if (/^(false|0|no|off)$/i.test(given)) return false;
      throw new WrongValue('true or false');
    },
  };
}

export function choice<const C extends string>(
  choices: readonly C[],
  options: Described<NoInfer<C>>,
): Setting<C> & { readonly choices: readonly C[] } {
  const read = (value: unknown): C => {
    const found = choices.find(each => each === value);
    if (found === undefined) throw new WrongValue(`one of ${choices.join(', ')}`);
    return found;
  };
  return { type: choices.join(' | '), choices, ...described(options), read, readText: read };
}

/** A list of texts. Text form: `a,b,c`. */
export function texts(
  options: Described<readonly string[]> & { pattern?: RegExp; shape?: string; mayBeEmpty?: boolean },
): Setting<readonly string[]> {
  const pattern = options.pattern ?? /\S/;
  const shape = options.shape ?? 'texts that are not empty';
  const read = (value: unknown): readonly string[] => {
    const isList = Array.isArray(value) && value.every(item => typeof item === 'string' && pattern.test(item));
    if (!isList) throw new WrongValue(`a list of ${shape}`);
    if (value.length === 0 && options.mayBeEmpty === false) throw new WrongValue(`a list of at least one of ${shape}`);
    return [...new Set(value as string[])];
  };
  return { type: 'list of texts', ...described(options), read, readText: given => read(splitList(given)) };
}

/** A list of texts that may be absent (`null`), which differs from an empty list. Text form: `a,b,c`. */
export function optionalTexts(
  options: Described<null> & { pattern: RegExp; shape: string },
): Setting<readonly string[] | null> {
  const { read, readText, type } = texts({ ...options, default: [] });
  return { type, ...described(options), read, readText };
}

/** A map of texts. Text form: `key=value,key=value`. */
export function textMap(
  options: Described<Readonly<Record<string, string>>> & { keyPattern: RegExp; shape: string },
): Setting<Readonly<Record<string, string>>> {
  const read = (value: unknown): Readonly<Record<string, string>> => {
    const isMap = typeof value === 'object' && value !== null && !Array.isArray(value);
    const entries = isMap ? Object.entries(value) : [];
    const isGood = entries.every(
      ([key, item]) => options.keyPattern.test(key) && typeof item === 'string' && item !== '',
    );
    if (!isMap || !isGood) throw new WrongValue(options.shape);
    return Object.fromEntries(entries);
  };
  return {
    type: 'map of texts',
    ...described(options),
    read,
    readText: given => {
      const pairs = splitList(given).map(item => {
        const at = item.indexOf('=');
        if (at < 1) throw new WrongValue(options.shape);
        return [item.slice(0, at), item.slice(at + 1)] as const;
      });
      return read(Object.fromEntries(pairs));
    },
  };
}

/** A setting with the kind of a request field; `kind` reads it. Text form: JSON. */
export function ofKind<T>(
  kind: Kind<T>,
  options: Described<T> & { readonly type: string; readonly shape: string },
): Setting<T> {
  const read = (value: unknown): T => {
    let wrong = '';
    const note = (at: string, text: string) => {
      wrong ||= ` (${at} ${text})`;
    };
    const found = kind.read(value, 'it', note);
    if (found === undefined || wrong !== '') throw new WrongValue(`${options.shape}${wrong}`);
    return found;
  };
  const readText = (given: string) => {
    let value: unknown;
    try {
      value = JSON.parse(given);
    } catch {
      throw new WrongValue(`${options.shape}, as JSON`);
    }
    return read(value);
  };
  return { type: options.type, ...described(options), read, readText };
}

function readPath(value: unknown): string {
  if (typeof value !== 'string' || value === '' || value.includes('\0')) throw new WrongValue('a path');
  return value;
}

function splitList(given: string): string[] {
  return given
    .split(',')
    .map(item => item.trim())
    .filter(item => item !== '');
}

/** Returns only the keys of `Described` that are present. */
function described<T>(options: Described<T>) {
  return {
    default: options.default,
    doc: options.doc,
    example: options.example,
    ...(options.defaultText === undefined ? {} : { defaultText: options.defaultText }),
    ...(options.flag === undefined ? {} : { flag: options.flag }),
    ...(options.isSocket === true ? { isSocket: true } : {}),
  };
}
