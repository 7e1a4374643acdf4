import { environmentNameProblem } from '../../core/environment.ts';
import { invalidRequest } from '../../core/error.ts';
import { type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import type { OpenExecRequest } from '../../sandbox/access.ts';
import { badQuery, flag, integer, parsed } from '../query.ts';

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
