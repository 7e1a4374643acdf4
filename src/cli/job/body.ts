import { MEBIBYTE } from '../../core/units.ts';
import { parsePairs, type VariableOptions, variablesOf } from '../deploy/variables.ts';
import type { Client, ClientOptions } from '../shared/client.ts';
import { parseDurationMs } from '../shared/duration.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { uploadDirectory } from './package.ts';

export interface JobOptions extends ClientOptions, VariableOptions {
  readonly workingDir?: string;
  readonly pip?: readonly string[];
  readonly metadata?: readonly string[];
  readonly cpus?: string;
  readonly memory?: string;
  readonly retries?: string;
  readonly timeout?: string;
  readonly priority?: string;
}

/** Returns the body of a submit, after uploading the working directory. */
export async function jobBody(
  io: Io,
  client: Client,
  command: readonly string[],
  options: JobOptions,
): Promise<Record<string, unknown>> {
  const metadata: Record<string, string> = {
    ...(options.metadata === undefined ? {} : parsePairs(options.metadata, '--metadata')),
    ...(options.retries === undefined ? {} : { 'rookery.retries': options.retries }),
    ...(options.timeout === undefined
      ? {}
      : { 'rookery.timeout_ms': String(parseDurationMs(options.timeout, '--timeout')) }),
    ...(options.priority === undefined ? {} : { 'rookery.priority': options.priority }),
  };
  const variables = variablesOf(options);
  const workingDir =
    options.workingDir === undefined ? {} : { working_dir: await uploadDirectory(io, client, options.workingDir) };
  // A `--` before the command is not part of it.
  const words = command[0] === '--' ? command.slice(1) : command;
  return {
    entrypoint: words.length === 1 ? words[0] : words.map(quoteForShell).join(' '),
    metadata,
    runtime_env: {
      ...workingDir,
      ...(variables === undefined ? {} : { env_vars: variables }),
      ...(options.pip === undefined ? {} : { pip: options.pip }),
    },
    ...(options.cpus === undefined ? {} : { entrypoint_num_cpus: amount(options.cpus, '--cpus') }),
    ...(options.memory === undefined ? {} : { entrypoint_memory: amount(options.memory, '--memory') * MEBIBYTE }),
  };
}

/**
 * Quotes a word for the shell. Several arguments are words; a single argument is a line for the shell and
 * stays unquoted.
 */
function quoteForShell(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

function amount(text: string, flag: string): number {
  const value = Number(text);
  if (!(value >= 0) || text.trim() === '')
    throw usageError(`${flag} must be a number from 0, not ${JSON.stringify(text)}.`);
  return value;
}
