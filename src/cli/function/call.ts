import { setTimeout as delay } from 'node:timers/promises';
import { type ServerEvent, serverEvents } from '../../../clients/typescript/src/server-events.ts';
import { backoffMs } from '../../lib/backoff.ts';
import { withTraceback } from '../agent/call.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import { readJsonArgument } from '../shared/input.ts';
import type { Io } from '../shared/io.ts';
import { prettyJson, withSpinner } from '../shared/print.ts';
import { functionPath, resolveFunction } from './records.ts';

interface InvokeOptions extends ClientOptions {
  readonly data?: string;
  readonly async?: boolean;
  readonly wait?: boolean;
  readonly stream?: boolean;
  readonly session?: string;
  readonly label?: string;
  readonly traceId?: string;
  readonly json?: boolean;
}

/** Calls a function and prints its value, events or request id: `rookery function invoke`. */
export async function invokeFunction(
  io: Io,
  given: string,
  data: string | undefined,
  options: InvokeOptions,
): Promise<void> {
  if (data !== undefined && options.data !== undefined)
    throw usageError('Give the data once: as the argument or with --data.');
  if (options.wait === true && options.async !== true) throw usageError('--wait belongs to --async.');
  if (options.stream === true && options.async === true) throw usageError('Either --stream or --async.');
  const body = await readJsonArgument(io, data ?? options.data ?? '{}');
  const headers = {
    ...(options.session === undefined ? {} : { 'x-instance-session': options.session }),
    ...(options.label === undefined ? {} : { 'x-instance-label': options.label }),
    ...(options.traceId === undefined ? {} : { 'x-trace-id': options.traceId }),
    ...(options.async === true ? { 'x-invoke-type': 'async' } : {}),
    ...(options.stream === true ? { accept: 'text/event-stream' } : {}),
  };
  const client = await Client.open(options, io);
  const path = functionPath(await resolveFunction(client, given), 'invocations');
  const request = { body, headers, timeoutMs: null };
  const command = `rookery function logs ${given}`;
  if (options.stream === true) {
    const stream = () => withSpinner(io, 'calling', () => client.stream('POST', path, request));
    await withTraceback(command, async () => printEvents(io, await stream()));
    return;
  }
  const call = () => withSpinner(io, 'calling', () => client.text('POST', path, request));
  const text = await withTraceback(command, call);
  if (options.async === true) await withTraceback(command, () => finishAsync(io, client, text, options));
  else io.out.write(`${prettyJson(text, io.out.isTerminal)}\n`);
}

async function printEvents(io: Io, answer: AsyncIterable<Buffer>): Promise<void> {
  let isDone = false;
  try {
    for await (const event of serverEvents(answer)) {
      if (event.data === '[DONE]' && event.type === 'message') isDone = true;
      else if (event.type === 'error') throw failureOf(event);
      else if (!io.out.write(`${event.data}\n`)) await io.out.drained();
    }
  } catch (error) {
    if (error instanceof CliError || io.signal.aborted) throw error;
    throw new CliError(`The connection broke (${(error as Error).message}).`, EXIT.unreachable);
  }
  if (!isDone) throw new CliError('The stream ended without its last event.', EXIT.unreachable);
}

function failureOf({ data }: ServerEvent): CliError {
  try {
    const { code, message } = JSON.parse(data) as { code?: unknown; message?: unknown };
    return new CliError(`${String(message)} (code ${String(code)})`);
  } catch {
    return new CliError(data);
  }
}

const POLL = { firstMs: 50, longestMs: 2000, factor: 1.5 };

async function finishAsync(io: Io, client: Client, text: string, options: InvokeOptions): Promise<void> {
  const { requestId } = JSON.parse(text) as { requestId: string };
  if (options.wait !== true) {
    io.out.write(`${options.json === true ? text : requestId}\n`);
    return;
  }
  // The call continues even if this command ends, so print its id now.
  io.err.write(`${requestId}\n`);
  const path = `/serverless/v1/functions/async-results/${encodeURIComponent(requestId)}`;
  const end = await withSpinner(io, `waiting for ${requestId}`, async () => {
    // The loop always ends: the service keeps a call and its result for a bounded time; afterwards the id is
    // unknown.
    for (let looks = 1; ; looks++) {
      const answer = await client.json('GET', path);
      if (answer.status === 'completed' || answer.status === 'failed') return answer;
      await delay(backoffMs(POLL, looks), undefined, { signal: io.signal }).catch(() => {
        throw new CliError('Interrupted. The call continues.');
      });
    }
  });
  if (options.json === true) {
    io.out.write(`${JSON.stringify(end)}\n`);
    return;
  }
  if (end.status === 'failed') {
    const { code, message } = end.error as { code: number; message: string };
    throw new CliError(`${message} (code ${code})`);
  }
  io.out.write(`${prettyJson(JSON.stringify(end.result ?? null), io.out.isTerminal)}\n`);
}
