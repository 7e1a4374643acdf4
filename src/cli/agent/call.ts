import { LIMITS } from '../../core/limits.ts';
import { agentArguments } from '../../explain/agent.ts';
import { outputText } from '../../lib/output-text.ts';
import { parsePairs } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import { readJsonArgument } from '../shared/input.ts';
import type { Io } from '../shared/io.ts';
import { prettyJson, withSpinner } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import { type CommandOptions, commandQuery, converse, type OutputSink, toStreams } from './command.ts';
import { resolveAgent } from './records.ts';

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
    const path = `/api/agent/${encodeURIComponent(id)}/invoke`;
    return withTraceback(`rookery agent logs ${agentArguments(given, options.namespace)}`, () =>
      client.text('POST', path, { body, headers, timeoutMs: null }),
    );
  });
  io.out.write(`${options.json === true ? text : prettyJson(resultOf(text), io.out.isTerminal)}\n`);
}

/**
 * Returns the text of `data` exactly as the handler's runtime wrote it. Parsing and serializing again could
 * change its numbers.
 */
export function resultOf(text: string): string {
  const match = /^\{"code":200,"data":(.*),"message":""\}$/s.exec(text);
  if (match?.[1] !== undefined) return match[1];
  return JSON.stringify((JSON.parse(text) as { data?: unknown }).data ?? null);
}

interface ExecOptions extends ForOne, CommandOptions {
  readonly stdin?: boolean;
  readonly timeout: string;
  readonly json?: boolean;
}

/** The exit code of `timeout(1)` for a timeout. */
const EXIT_TIMED_OUT = 124;

/** Runs a command in an agent's sandbox. Returns the exit code of the command. */
export async function execInAgent(
  io: Io,
  given: string,
  command: readonly string[],
  options: ExecOptions,
): Promise<number> {
  const timeoutSeconds = Math.max(1, Math.ceil(parseDurationMs(options.timeout, '--timeout') / 1000));
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  if (options.stdin === true) return await streamCommand(io, client, id, command, timeoutSeconds, options);
  const body = {
    command,
    ...(options.workdir === undefined ? {} : { working_dir: options.workdir }),
    ...(options.env === undefined ? {} : { env: parsePairs(options.env, '--env') }),
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
    if (returncode === -1) io.err.write(timedOut(timeoutSeconds));
  }
  return returncode === -1 ? EXIT_TIMED_OUT : returncode & 0xff;
}

/** Runs a command with streams as stdin and outputs. The command starts at once, and bytes pass unchanged. */
async function streamCommand(
  io: Io,
  client: Client,
  id: string,
  command: readonly string[],
  timeoutSeconds: number,
  options: ExecOptions,
): Promise<number> {
  const query = commandQuery(command, options);
  const socket = await client.webSocket(`/api/agent/${encodeURIComponent(id)}/exec?${query}`);
  const output = options.json === true ? new KeptOutput() : null;
  let isLate = false;
  // Closing the socket ends the command.
  const timer = setTimeout(() => {
    isLate = true;
    socket.close();
  }, timeoutSeconds * 1000);
  let returncode = -1;
  try {
    returncode = await converse(io, socket, false, output?.sink ?? toStreams(io));
  } catch (error) {
    if (!isLate) throw error;
  } finally {
    clearTimeout(timer);
    io.stdin.destroy();
  }
  if (output !== null) io.out.write(`${JSON.stringify(output.answer(returncode))}\n`);
  else if (returncode === -1) io.err.write(timedOut(timeoutSeconds));
  return returncode === -1 ? EXIT_TIMED_OUT : returncode;
}

/** Collects the outputs of a command for one JSON answer: the first bytes of each. */
class KeptOutput {
  readonly #parts: [Buffer[], Buffer[]] = [[], []];
  readonly #left: [number, number] = [LIMITS.execOutputBytes, LIMITS.execOutputBytes];
  #isTruncated = false;

  readonly sink: OutputSink = async (chunk, isStderr) => {
    const index = isStderr ? 1 : 0;
    const kept = chunk.subarray(0, this.#left[index]);
    if (kept.length < chunk.length) this.#isTruncated = true;
    this.#left[index] -= kept.length;
    this.#parts[index].push(kept);
  };

  /** Returns the answer that the service gives for a command without streams. */
  answer(returncode: number): object {
    const [stdout, stderr] = this.#parts.map(parts => outputText(Buffer.concat(parts), LIMITS.execOutputBytes));
    return { returncode, stdout, stderr, truncated: this.#isTruncated, timed_out: returncode === -1 };
  }
}

function timedOut(seconds: number): string {
  return `The command was ended after ${seconds} s.\n`;
}

/** Matches failures that user code raised in a call or while it was loaded. */
const OF_CODE = /\bFail to run user call handler\b|\bcode[=":\s]+400[12]\b/;

/** Adds to a failed call the commands that print its traceback and its record. */
export async function withTraceback<T>(command: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof CliError) || !OF_CODE.test(error.message)) throw error;
    const { message, exitCode, status, traceId } = error;
    const record = traceId === null ? '' : ` (trace id ${traceId})\nThe call: rookery call show ${traceId}`;
    throw new CliError(`${message}\nThe traceback: ${command}${record}`, exitCode, status, traceId);
  }
}
