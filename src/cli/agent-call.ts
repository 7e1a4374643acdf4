import { resolveAgent } from './agent-records.ts';
import { Client, type ClientOptions } from './client.ts';
import { parseDurationMs } from './duration.ts';
import { usageError } from './exit.ts';
import { readJsonArgument, readStdin } from './input.ts';
import type { Io } from './io.ts';
import { prettyJson, withSpinner } from './print.ts';
import { parsePairs } from './variables.ts';

interface ForOne extends ClientOptions {
  readonly namespace: string;
}

interface InvokeOptions extends ForOne {
  readonly data?: string;
  readonly timeout?: string;
  readonly traceId?: string;
  readonly json?: boolean;
}

export async function invokeAgent(
  io: Io,
  given: string,
  data: string | undefined,
  options: InvokeOptions,
): Promise<void> {
  if (data !== undefined && options.data !== undefined)
    throw usageError('Give the data once: as the argument or with --data.');
  const body = await readJsonArgument(io, data ?? options.data ?? '{}');
  const headers = {
    ...(options.timeout === undefined
      ? {}
      : { 'x-invoke-timeout-ms': String(parseDurationMs(options.timeout, '--timeout')) }),
    ...(options.traceId === undefined ? {} : { 'x-trace-id': options.traceId }),
  };
  const client = await Client.open(options, io);
  const text = await withSpinner(io, 'calling', async () => {
    const id = await resolveAgent(client, given, options.namespace);
    return client.text('POST', `/api/agent/${encodeURIComponent(id)}/invoke`, { body, headers, timeoutMs: null });
  });
  io.out.write(`${options.json === true ? text : prettyJson(resultOf(text), io.out.isTerminal)}\n`);
}

/** The value of `data`, as the handler's runtime wrote it: reading and writing it again could change its numbers. */
function resultOf(text: string): string {
  const match = /^\{"code":200,"data":(.*),"message":""\}$/s.exec(text);
  if (match?.[1] !== undefined) return match[1];
  return JSON.stringify((JSON.parse(text) as { data?: unknown }).data ?? null);
}

interface ExecOptions extends ForOne {
  readonly workdir?: string;
  readonly env?: readonly string[];
  readonly stdin?: boolean;
  readonly timeout: string;
  readonly json?: boolean;
}

/** What `timeout(1)` ends with. */
const EXIT_TIMED_OUT = 124;

/** Answers the exit code of the command. */
export async function execInAgent(
  io: Io,
  given: string,
  command: readonly string[],
  options: ExecOptions,
): Promise<number> {
  const timeoutSeconds = Math.max(1, Math.ceil(parseDurationMs(options.timeout, '--timeout') / 1000));
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const body = {
    command,
    ...(options.workdir === undefined ? {} : { working_dir: options.workdir }),
    ...(options.env === undefined ? {} : { env: parsePairs(options.env, '--env') }),
    ...(options.stdin === true ? { stdin: await readStdin(io) } : {}),
    timeout: timeoutSeconds,
  };
  const path = `/api/agent/${encodeURIComponent(id)}/exec`;
  const answer = await client.json('POST', path, { body: JSON.stringify(body), timeoutMs: null });
  const returncode = Number(answer.returncode);
  if (options.json === true) io.out.write(`${JSON.stringify(answer)}\n`);
  else {
    io.out.write(String(answer.stdout ?? ''));
    io.err.write(String(answer.stderr ?? ''));
    if (answer.truncated === true) io.err.write('(the output was too long and was cut)\n');
    if (returncode === -1) io.err.write(`The command was ended after ${timeoutSeconds} s.\n`);
  }
  return returncode === -1 ? EXIT_TIMED_OUT : returncode & 0xff;
}
