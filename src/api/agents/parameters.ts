import { environmentNameProblem } from '../../core/environment.ts';
import { invalidRequest } from '../../core/error.ts';
import { POOL_LABELS } from '../../core/function-call.ts';
import type { InstanceStatus, Labels } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import { Header, type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import type { OpenExecRequest } from '../../sandbox/access.ts';
import { anyText, badQuery, flag, integer, parsed, required } from '../query.ts';
import { MODE_PATTERN, MODE_TEXT, pathProblem, readMode } from './files-upload.ts';

/** The specification fixes the text of a refusal, which lacks PAUSED and SLEEPING. */
const STATUSES: readonly InstanceStatus[] = ['CREATING', 'RUNNING', 'STOPPING', 'FAILED', 'PAUSED', 'SLEEPING'];
const CURSOR = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The query of an agent's log, in addition to `LOG_QUERY`. */
export const PREVIOUS_QUERY = {
  previous: integer({ min: 1, max: LIMITS.previousLogs.runs }, null, {
    description:
      'The log of an earlier run, whose sandbox was removed: 1 is the previous run. Only `tail` may be combined with it.',
  }),
};

/** The query of a list of agents. */
export const LIST_QUERY = {
  namespace: anyText({ description: 'Exact.' }),
  name: anyText({ description: 'Exact.' }),
  status: parsed<InstanceStatus | undefined>({ enum: STATUSES }, undefined, (text, name) => {
    const status = STATUSES.find(one => one === text);
    if (status === undefined) throw badQuery(name, 'one of CREATING, RUNNING, STOPPING, FAILED', text);
    return status;
  }),
  label: {
    schema: {
      type: 'array',
      items: { type: 'string', pattern: '^[^=]+=' },
      description: '`name=value`: a label that it has. May be repeated; then it has all of them.',
    },
    read: readLabels,
  },
  template: anyText({ description: 'Exact.' }),
  limit: integer({ min: 1, max: LIMITS.agentList.max }, LIMITS.agentList.default),
  cursor: parsed<string | null>(
    {
      type: 'string',
      pattern: `${CURSOR.source}|^$`,
      description: 'The `next_cursor` of the page before.',
    },
    null,
    (text, name) => {
      if (!CURSOR.test(text)) throw badQuery(name, 'the next_cursor of a page before', text);
      return text;
    },
  ),
};

/** Reads `label` parameters; undefined without one. */
function readLabels(query: Sent): Labels | undefined {
  const pairs = listOf(query.label).map(pair => {
    const at = pair.indexOf('=');
    if (at < 1) throw badQuery('label', 'name=value', pair);
    return [pair.slice(0, at), pair.slice(at + 1)] as const;
  });
  return pairs.length === 0 ? undefined : Object.fromEntries(pairs);
}

const SECONDS = /^\d+(\.\d+)?(e[+-]?\d{1,3})?$/i;

export const DELETE_QUERY = {
  grace: parsed<number | null>(
    {
      type: 'number',
      minimum: 0,
      maximum: LIMITS.deleteGraceMaxSeconds,
      description: 'Seconds for `pre_stop` and the end; default: the larger of 10 and the registered pre_stop time.',
    },
    null,
    (text, name) => {
      const max = LIMITS.deleteGraceMaxSeconds;
      const seconds = Number(text);
      if (!SECONDS.test(text) || seconds > max) throw badQuery(name, `seconds from 0 to ${max}`, text);
      return seconds;
    },
  ),
};

export const IMPORT_QUERY = {
  namespace: anyText({ description: 'Another namespace than that of the export.' }),
  name: anyText({ description: 'Another name than that of the export.' }),
};

export const UPDATE_QUERY = {
  apply: parsed<'now' | undefined>(
    { enum: ['now'], description: '`now`: it takes effect between two calls. Default: at the next start.' },
    undefined,
    (text, name) => {
      if (text !== 'now') throw badQuery(name, 'now', text);
      return text;
    },
  ),
};

/** Longest `wait` of a sleep. */
const LONGEST_SLEEP_WAIT_SECONDS = 3600;

export const SLEEP_QUERY = {
  wait: parsed(
    {
      type: 'number',
      minimum: 0,
      maximum: LONGEST_SLEEP_WAIT_SECONDS,
      default: 0,
      description: 'Seconds to wait for the end of its uses. It is 409 if the agent is still in use then.',
    },
    0,
    (text, name) => {
      const max = LONGEST_SLEEP_WAIT_SECONDS;
      const seconds = Number(text);
      if (!SECONDS.test(text) || seconds > max) throw badQuery(name, `seconds from 0 to ${max}`, text);
      return seconds;
    },
  ),
  force: flag('Cuts its uses off, as a restart does: open calls fail and change nothing.'),
};

const pathOf = (description: string) =>
  required(
    parsed<string | undefined>(
      { type: 'string', minLength: 1, pattern: '^[^\\u0000]+$', description },
      undefined,
      (text, name) => {
        const problem = pathProblem(text);
        if (problem !== undefined) throw invalidRequest(`invalid query: ${name} ${problem}`);
        return text;
      },
    ),
  );
const path = pathOf('A path inside the sandbox; a relative one begins at its working directory.');

export const DOWNLOAD_QUERY = { path };

export const FILES_QUERY = {
  path,
  max_depth: integer({ min: 1, max: LIMITS.fileList.maxDepth }, undefined, {
    description: `With \`recursive\`: 1 = what is in the directory itself; default ${LIMITS.fileList.maxDepth}.`,
  }),
  recursive: flag('What is in its directories too. Symbolic links are not followed.'),
};

const user = parsed<string | null>(
  {
    type: 'string',
    description:
      'An account of the sandbox: relative paths begin at its home, new files are its, and the rights are those of root inside. Default: the rights and the working directory of the user that the code runs as.',
  },
  null,
  text => text,
);

export const ENTRY_QUERY = { path, user };

export const RENAME_QUERY = {
  from: pathOf('The path inside the sandbox.'),
  to: pathOf('The new path.'),
  user,
};

export const WATCH_QUERY = {
  path,
  user,
  recursive: flag('Changes in its directories too, also in those that are made later.'),
  facts: flag('With `file`, as `files/stat` describes it, where the file exists and is new or changed.'),
};

export const MKDIR_QUERY = {
  path,
  mode: parsed<number | null>(
    { type: 'string', pattern: MODE_PATTERN, description: 'Permission bits in octal.' },
    null,
    (text, name) => readMode(text, wrong => badQuery(name, MODE_TEXT, wrong)),
  ),
  recursive: flag('Its parents too; an existing one is no failure.'),
};

/** The longest timeout of any function. The instance's own limit is smaller or equal. */
const LONGEST_CALL_MS = LIMITS.functionTimeoutSeconds.max * 1000;

export const INVOKE_HEADERS = {
  timeoutMs: new Header(
    'X-Invoke-Timeout-Ms',
    { type: 'integer', minimum: 1, description: 'Milliseconds, waiting included; can only shorten the bound.' },
    LONGEST_CALL_MS,
    (text, name) => {
      if (!/^0*[1-9]\d*$/.test(text)) {
        throw invalidRequest(`the header ${name} must be a positive integer, got "${text}"`);
      }
      return Math.min(Number(text), LONGEST_CALL_MS);
    },
  ),
  mayWake: new Header(
    'X-Rookery-Wake',
    { enum: ['never'], description: '`never`: a sleeping agent stays asleep, and the request fails with 409.' },
    true,
    (text, name) => {
      if (text !== 'never') throw invalidRequest(`the header ${name} must be never, got "${text}"`);
      return false;
    },
  ),
};

export const CREATE_HEADERS = {
  poolLabels: POOL_LABELS,
  idempotencyKey: new Header<string | undefined>(
    'Idempotency-Key',
    {
      minLength: 1,
      maxLength: LIMITS.idempotencyKeyChars,
      description: 'The same key and body answer with the same instance.',
    },
    undefined,
    (text, name) => {
      if (text === '' || text.length > LIMITS.idempotencyKeyChars) {
        throw invalidRequest(`the header ${name} must have 1 to ${LIMITS.idempotencyKeyChars} characters`);
      }
      return text;
    },
  ),
};

/** The default command: a login shell, `bash` if it exists, otherwise `sh`. */
const LOGIN_SHELL = ['/bin/sh', '-c', 'if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi'];
const DEFAULT_SIZE = { columns: 80, rows: 24 };
const SIZE = { min: 1, max: 65_535 };
const TERM = 'xterm-256color';

/** The query of a terminal, in the order in which it is checked. */
export const TERMINAL_QUERY = {
  tty: flag('With a terminal.'),
  cols: integer(SIZE, DEFAULT_SIZE.columns),
  rows: integer(SIZE, DEFAULT_SIZE.rows),
  working_dir: parsed(
    {
      type: 'string',
      description: 'Default: the working directory of the sandbox; a relative one counts from it.',
    },
    '',
    (text, name) => {
      if (text.includes('\0')) throw invalidRequest(`invalid query: ${name} must not contain a NUL character`);
      return text;
    },
  ),
  command: {
    schema: {
      type: 'string',
      description:
        'Given once: run by `/bin/sh -c`, or a JSON list of arguments. Given several times: each is an argument. Default: a login shell.',
    },
    read: readCommand,
  },
  env: {
    schema: { type: 'string', description: '`NAME=value`, added to its environment; may be repeated.' },
    read: readEnvironment,
  },
};

/** Fails with `invalid_request`. */
export function readOpenExec(query: Sent): OpenExecRequest {
  const { tty, cols, rows, working_dir, command, env } = readParameters<ParametersOf<typeof TERMINAL_QUERY>>(
    TERMINAL_QUERY,
    query,
  );
  return {
    argv: command,
    workingDir: working_dir,
    env: { ...(tty ? { TERM } : {}), ...env },
    terminal: tty ? { columns: cols, rows } : null,
  };
}

/**
 * Parses the command.
 * A single text is run by `/bin/sh -c`, or is a JSON list of arguments. If the parameter is repeated, each
 * value is an argument.
 */
function readCommand(query: Sent): readonly string[] {
  const given = listOf(query.command);
  const [first] = given;
  if (first === undefined || (given.length === 1 && first === '')) return LOGIN_SHELL;
  const argv = given.length > 1 ? given : parsedList(first);
  if (argv === null) return ['/bin/sh', '-c', withoutNul(first)];
  if (argv.length === 0 || argv[0] === '') throw badQuery('command', 'a command that names a program', given.join(' '));
  for (const argument of argv) withoutNul(argument);
  return argv;
}

/**
 * Parses a JSON list of texts. Returns null if the text is not JSON. Fails with `invalid_request` for other
 * JSON.
 */
function parsedList(text: string): string[] | null {
  if (!text.startsWith('[')) return null;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // `[ -f x ] && …` is a shell command.
    return null;
  }
  if (Array.isArray(value) && value.every(each => typeof each === 'string')) return value;
  throw badQuery('command', 'a JSON list of texts', text);
}

function readEnvironment(query: Sent): Record<string, string> {
  const env: Record<string, string> = {};
  for (const pair of listOf(query.env)) {
    const at = pair.indexOf('=');
    if (at < 1) throw badQuery('env', 'NAME=value', pair);
    const name = pair.slice(0, at);
    const problem = environmentNameProblem(name);
    if (problem !== undefined) throw invalidRequest(`invalid query: env ${name} ${problem}`);
    env[name] = withoutNul(pair.slice(at + 1));
  }
  return env;
}

function listOf(value: string | string[] | undefined): readonly string[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}

function withoutNul(text: string): string {
  if (text.includes('\0')) throw invalidRequest('invalid query: a text must not contain a NUL character');
  return text;
}
