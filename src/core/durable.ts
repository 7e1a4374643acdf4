import { posix } from 'node:path';
import { invalidRequest } from './error.ts';
import { isJsonObject, type JsonObject } from './json.ts';
import { boolean, described, integer, type Kind, number, refine, text, wrongAt } from './kind.ts';
import { runsInCluster } from './sandbox-types.ts';
import { maybe, type ObjectKind, object, optional, required } from './shape.ts';

/** A durable agent as requested: its state is saved before a call is answered. */
export interface Durable {
  /** Shape of the state, a number of the user's code. */
  readonly schema: number;
  /** Time without use after which the agent sleeps. 0 or absent: it sleeps only on request. */
  readonly sleepMs?: number;
  /** Functions in addition to the handler. Absent: there are none. */
  readonly entries?: DurableEntries;
  /** Directory that survives the sandbox. Absent: there is none. */
  readonly files?: DurableFiles;
}

/** Directory of a durable agent that is kept between its sandboxes, until the agent is deleted. */
export interface DurableFiles {
  /** Absolute path inside the sandbox. */
  readonly path: string;
  /** Size above which the agent does not fall asleep, MB. */
  readonly maxMb: number;
}

/** Functions of the code of a durable agent, each as `module.function`; absent: there is none. */
export interface DurableEntries {
  /** Gets the alarms instead of the handler. */
  readonly alarm?: string;
  /** Runs before the agent falls asleep. */
  readonly sleep?: string;
}

/** Functions of the code of a registered function, in addition to its handler. `''`: there is none. */
export interface FunctionHandlers {
  readonly initializer: string;
  readonly pre_stop: string;
  readonly alarm?: string | undefined;
  readonly sleep?: string | undefined;
}

/** Returns the kind of the entries of a registered function, whose names are of the kind `name`. */
export function functionHandlers(name: Kind<string>): ObjectKind<FunctionHandlers> {
  return object<FunctionHandlers>({
    initializer: optional(name, ''),
    pre_stop: optional(name, ''),
    alarm: maybe(name, 'Of durable agents: what gets their alarms.'),
    sleep: maybe(name, 'Of durable agents: what runs before they fall asleep.'),
  });
}

/** Default of `sleep_after_seconds`. */
const SLEEP_AFTER_SECONDS = 60;
const LONGEST_SLEEP_AFTER_SECONDS = 86_400;

const anything: Kind<unknown> = { describe: () => ({}), read: value => value };
const NO_EFFECT = 'Has no effect yet.';

/** Members that a later version implements. */
const NOT_YET = {
  pause_after_seconds: maybe(anything, NO_EFFECT),
  save: maybe(anything, NO_EFFECT),
  schema: maybe(anything, NO_EFFECT),
  code: maybe(anything, NO_EFFECT),
  busy: maybe(anything, NO_EFFECT),
  wake_on: maybe(anything, NO_EFFECT),
  max_awake_seconds: maybe(anything, NO_EFFECT),
};

const sleepAfter: Kind<number> = refine(
  number({ min: 0, max: LONGEST_SLEEP_AFTER_SECONDS }),
  (value, path, problem) => {
    if (value > 0 && value < 1) problem(path, `must be 0 or from 1 to ${LONGEST_SLEEP_AFTER_SECONDS}`);
  },
);

const DEFAULT_FILES_MB = 64;
const MOST_FILES_MB = 65_536;

const directoryInside: Kind<string> = refine(described(text(), { examples: ['/data'] }), (value, path, problem) => {
  if (value === '/' || posix.normalize(value) !== value || !posix.isAbsolute(value) || value.endsWith('/'))
    problem(path, 'must be an absolute path other than /, without "." , ".." and a slash at its end');
});

const files = object({
  path: required(directoryInside, 'Absolute path of the directory inside the sandbox.'),
  max_mb: optional(
    integer({ min: 1, max: MOST_FILES_MB }),
    DEFAULT_FILES_MB,
    'Above it the agent does not fall asleep.',
  ),
});

const whole = object({
  ...NOT_YET,
  files: maybe(files, 'A directory that is kept when its process ends; not with kubernetes.'),
  sleep_after_seconds: maybe(sleepAfter, {
    default: SLEEP_AFTER_SECONDS,
    description:
      'It sleeps after this time without a call, a command or other access; 0: only on request. With `idle_seconds` the default is 0.',
  }),
});

/** `true`, `false`, or an object with more fields. */
export const durable: Kind<Durable | false> = {
  describe: options => ({ anyOf: [boolean.describe(options), whole.describe(options)] }),
  fields: whole.fields,
  read(value, path, problem) {
    if (value === false) return false;
    if (value === true) return { schema: 1 };
    if (isJsonObject(value)) {
      const read = whole.read(value, path, problem);
      const seconds = read?.sleep_after_seconds;
      return {
        schema: 1,
        ...(seconds !== undefined && { sleepMs: Math.ceil(seconds * 1000) }),
        ...(read?.files && { files: { path: read.files.path, maxMb: read.files.max_mb } }),
      };
    }
    return wrongAt(path, 'must be true, false or an object', problem);
  },
};

/**
 * Returns the member of a request with the idle time after which the agent sleeps. `idleMs`: the time after
 * which it is deleted or paused. Fails with `invalid_request` if both are set.
 */
export function withSleep(durable: Durable, idleMs: number | undefined): Durable {
  const { sleepMs } = durable;
  if (idleMs === undefined) return { ...durable, sleepMs: sleepMs ?? SLEEP_AFTER_SECONDS * 1000 };
  if (sleepMs !== undefined && sleepMs > 0)
    throw invalidRequest(
      'invalid request body: durable.sleep_after_seconds and idle_seconds exclude each other; leave out one of them',
    );
  return { ...durable, sleepMs: 0 };
}

/**
 * Checks the place of the directory of a durable agent. Fails with `invalid_request` if the sandbox has no
 * such directory, or if another mount or the code is at, above or below it.
 */
export function assertFilesFit(
  { files: { path } }: { readonly files: DurableFiles },
  sandboxType: string,
  others: readonly string[],
): void {
  if (runsInCluster(sandboxType))
    throw invalidRequest(
      'invalid request body: durable.files: pods keep no files; choose a sandbox_type of this machine',
    );
  const isIn = (inner: string, outer: string) => `${inner}/`.startsWith(`${outer}/`);
  const other = others.map(each => posix.normalize(each)).find(each => isIn(path, each) || isIn(each, path));
  if (other !== undefined)
    throw invalidRequest(
      `invalid request body: durable.files.path: ${path} and ${other} overlap; choose a path outside of mounts and code`,
    );
}

/** Returns the entries that a request names; undefined: it names none. */
export function entriesOf({ alarm, sleep }: Required<DurableEntries>): DurableEntries | undefined {
  if (alarm === '' && sleep === '') return undefined;
  return { ...(alarm !== '' && { alarm }), ...(sleep !== '' && { sleep }) };
}

/** Returns warnings about the members of `durable` in the body of a create that have no effect yet. */
export function durableWarnings({ durable: sent }: JsonObject): readonly string[] {
  if (!isJsonObject(sent)) return [];
  return Object.keys(NOT_YET)
    .filter(name => (sent[name] ?? null) !== null)
    .map(name => `durable.${name} has no effect yet`);
}
