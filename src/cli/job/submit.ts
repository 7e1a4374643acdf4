import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Packed } from '../../../clients/typescript/src/code-archive.ts';
import { MEBIBYTE } from '../../core/units.ts';
import { packDirectory, type What } from '../code/upload.ts';
import { parsePairs, type VariableOptions, variablesOf } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printWarning, withSpinner } from '../shared/print.ts';
import { withScratch } from '../shared/scratch.ts';
import { parseDurationMs } from '../shared/units.ts';
import { type JobRecord, jobPath, printFollowedLog } from './records.ts';

interface ShownOptions {
  readonly follow?: boolean;
  readonly json?: boolean;
}

interface SubmitOptions extends JobOptions, ShownOptions {
  readonly id?: string;
}

/** Submits a job. Returns the exit code: 1 if `--follow` is set and the job failed. */
export async function submitJob(io: Io, command: readonly string[], options: SubmitOptions): Promise<number> {
  const client = await Client.open(options, io);
  const body = {
    ...(await jobBody(io, client, command, options)),
    ...(options.id === undefined ? {} : { submission_id: options.id }),
  };
  const answer = await client.json('POST', '/api/jobs/', { body: JSON.stringify(body) });
  return await printSubmitted(io, client, answer, options);
}

/** Submits a job again. Returns the exit code as `submitJob` does. */
export async function rerunJob(io: Io, job: string, options: ShownOptions & ClientOptions): Promise<number> {
  const client = await Client.open(options, io);
  return await printSubmitted(io, client, await client.json('POST', `${jobPath(job)}/rerun`), options);
}

async function printSubmitted(
  io: Io,
  client: Client,
  answer: Readonly<Record<string, unknown>>,
  options: ShownOptions,
): Promise<number> {
  const id = String(answer.submission_id);
  if (options.json === true) printJson(io, answer);
  else if (options.follow === true) io.err.write(`${id}\n`);
  else io.out.write(`${id}\n`);
  if (options.follow !== true) return EXIT.ok;
  await printFollowedLog(io, client, id);
  if (io.signal.aborted) return EXIT.ok;
  const job = (await client.json('GET', jobPath(id))) as unknown as JobRecord;
  if (job.status === 'SUCCEEDED') return EXIT.ok;
  io.err.write(`Job ${id} is ${job.status}: ${job.message.split(', last available logs')[0]}\n`);
  return EXIT.failure;
}

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

const FLAG: What = { flag: '--working-dir' };

/** Packs a directory and uploads it if the service does not have it. Returns its URI. */
export async function uploadDirectory(io: Io, client: Client, directory: string, what: What = FLAG): Promise<string> {
  return await packAnd(io, directory, what, async ({ bytes }, archive, name) => {
    const path = `/api/packages/gcs/${name}`;
    if (await isThere(client, path)) return;
    await withSpinner(io, `uploading ${Math.ceil(bytes / 1024)} KiB`, () =>
      client.text('PUT', path, { upload: { content: createReadStream(archive), bytes }, timeoutMs: null }),
    );
  });
}

/** Returns the URI that an upload would have. Sends nothing. */
export async function nameOfDirectory(io: Io, directory: string, what: What = FLAG): Promise<string> {
  return await packAnd(io, directory, what, async () => undefined);
}

async function packAnd(
  io: Io,
  directory: string,
  what: What,
  act: (packed: Packed, archive: string, name: string) => Promise<void>,
): Promise<string> {
  const found = await stat(directory).catch(() => null);
  if (!found?.isDirectory()) throw usageError(`${what.flag} ${directory} is not a directory.`);
  return await withScratch('package', async work => {
    const archive = join(work, 'package.tar.gz');
    // Links are followed, because the job cannot reach their targets.
    const packed = await withSpinner(io, `packing ${directory}`, () =>
      packDirectory(directory, archive, { ...what, links: 'followed' }),
    );
    for (const warning of packed.warnings) printWarning(io, warning);
    const name = `_rookery_pkg_${packed.contentSha256.slice(0, 40)}.tar.gz`;
    await act(packed, archive, name);
    return `gcs://${name}`;
  });
}

async function isThere(client: Client, path: string): Promise<boolean> {
  try {
    await client.text('GET', path);
    return true;
  } catch (error) {
    if (error instanceof CliError && error.message.includes('does not exist')) return false;
    throw error;
  }
}
