import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { LATEST, normalizeVersion } from '../../core/urn.ts';
import { resultOf } from '../agent/call.ts';
import { functionPath, resolveFunction } from '../function/records.ts';
import { Client } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson, withSpinner } from '../shared/print.ts';
import { type Answer, differencesOf, HIDDEN, printComparison, recordedAnswer } from './compare.ts';
import { type Call, findCall, targetOf } from './records.ts';
import { type Place, type ReplayOptions, withCopy } from './replay-copy.ts';

/** Time in which the history has a call that it keeps. Failed calls are always kept. */
const RECORD_MS = { ok: 2000, error: 10_000 };
const POLL_MS = 100;

/** Runs the input of a recorded call again and prints both answers. Returns the exit code. */
export async function replayCall(io: Io, id: string, options: ReplayOptions): Promise<number> {
  const client = await Client.open(options, io);
  const call = await findCall(client, id);
  const input = inputOf(call);
  checkOptions(call, options);
  const run = (client: Client, io: Io, place: Place) => runAgain(client, io, place, input);
  const answer =
    call.kind === 'agent'
      ? await withCopy(io, call, options, run)
      : await run(client, io, await placeOfFunction(client, call, options.version));
  const recorded = recordedAnswer(call);
  const differences = differencesOf(recorded, answer);
  if (options.json === true) printJson(io, { recorded, new: answer, different: differences });
  else printComparison(io, recorded, answer, differences);
  return differences.length === 0 ? EXIT.ok : EXIT.failure;
}

/** Returns the whole input. Fails if the history does not have it. */
export function inputOf({ id, mode, input, input_bytes: bytes, is_input_cut: isCut }: Call): string {
  const because = (why: string, next: string) => new CliError(`The call ${id} cannot be replayed: ${why}. ${next}`);
  if (mode === 'alarm') {
    throw because('an alarm made it', 'rookery agent alarms AGENT --set NAME sets the alarm again.');
  }
  if (input === undefined) {
    throw because('its input is not shown to viewers', 'Use a token of the role user or developer.');
  }
  if (isCut === true && input === '') {
    throw because('its input was not kept', 'The setting history.bodyBytes says how many bytes of later calls are.');
  }
  if (isCut === true) {
    const kept = Buffer.byteLength(input);
    throw because(
      `its input was cut: the history has about ${kept} of ${bytes} bytes`,
      'A higher history.bodyBytes keeps more of later calls.',
    );
  }
  if (input.includes(HIDDEN)) {
    throw because(
      'its input has hidden values ("[redacted]")',
      'Call the agent or function with a whole input, or shorten the setting history.redact for later calls.',
    );
  }
  if (Buffer.byteLength(input) !== bytes) {
    throw because('its input is not text', 'Call the agent or function with the original bytes.');
  }
  return input;
}

function checkOptions({ kind }: Call, { version, code, allowWrites }: ReplayOptions): void {
  if (kind === 'agent' && version !== undefined) {
    throw usageError('--version is for calls of functions, and this call is of an agent: use --code.');
  }
  if (kind === 'function' && (code !== undefined || allowWrites === true)) {
    const flag = code === undefined ? '--allow-writes' : '--code';
    throw usageError(
      `${flag} is for calls of agents, and this call is of a function: publish the code and use --version.`,
    );
  }
}

export async function placeOfFunction(
  client: Client,
  call: Pick<Call, 'kind' | 'function'>,
  given = LATEST,
): Promise<Place> {
  const version = normalizeVersion(given);
  if (version === '') throw usageError('--version must name a version, such as v1 or latest.');
  const name = call.function ?? '';
  const urn = await resolveFunction(client, `${name}:${version}`);
  const target = targetOf({ ...call, version: version === LATEST ? 'latest' : version });
  return { path: functionPath(urn, 'invocations'), query: { function: name }, target };
}

/** Sends the input. Returns the record of the new call, or its answer when the history does not keep it. */
async function runAgain(client: Client, io: Io, place: Place, input: string): Promise<Answer> {
  const sent = await withSpinner(io, 'calling', () => sendInput(client, place, input, {}));
  return (await recordedAgain(client, io, place, sent)) ?? answerOf(place, sent);
}

/** A new call that has ended. */
export interface SentCall {
  readonly traceId: string;
  readonly elapsedMs: number;
  /** The answer, or the failure with which the service answered. */
  readonly result: { readonly text: string } | { readonly error: CliError };
}

/** Calls the place in a new trace. `timeoutMs`: the time until the answer; absent: that of the service. */
export async function sendInput(
  client: Client,
  { path }: Place,
  input: string,
  { timeoutMs = null, headers = {} }: { readonly timeoutMs?: number | null; readonly headers?: Record<string, string> },
): Promise<SentCall> {
  const traceId = randomUUID();
  const startedAt = performance.now();
  const result = await client
    .text('POST', path, { body: input, headers: { ...headers, 'x-trace-id': traceId }, timeoutMs })
    .then(
      text => ({ text }),
      (error: unknown) => {
        if (error instanceof CliError && error.status !== null) return { error };
        throw error;
      },
    );
  return { traceId, elapsedMs: performance.now() - startedAt, result };
}

/** Waits for the record of a new call. Null: the history does not keep it. */
export async function recordedAgain(
  client: Client,
  io: Io,
  place: Place,
  { traceId, result }: SentCall,
): Promise<Answer | null> {
  const untilMs = performance.now() + ('error' in result ? RECORD_MS.error : RECORD_MS.ok);
  const record = await recordOf(client, io, { ...place.query, trace_id: traceId, limit: '100' }, untilMs);
  return record === null ? null : { ...recordedAnswer(record), target: place.target };
}

/** Returns the answer of a new call without its record. Fails with the failure of the call. */
export function answerOf(place: Place, { elapsedMs, result }: SentCall): Answer {
  // A failure without a record was refused before it reached the code.
  if ('error' in result) throw result.error;
  const output = place.query.agent === undefined ? result.text : resultOf(result.text);
  return {
    ...{ id: '-', target: place.target, outcome: 'ok', error_code: null, error: '', output, is_recorded: false },
    ...{ duration_ms: elapsedMs, output_bytes: Buffer.byteLength(output), is_output_cut: false },
  };
}

/** Returns the record of the call that the trace began with, or null if none appears in time. */
async function recordOf(
  client: Client,
  io: Io,
  query: Readonly<Record<string, string>>,
  untilMs: number,
): Promise<Call | null> {
  for (;;) {
    const { calls } = await client.json('GET', `/api/calls?${new URLSearchParams(query)}`);
    // A function that calls itself leaves more than one record. The outer call began first.
    const first = (calls as readonly Call[]).at(-1);
    if (first !== undefined) return await findCall(client, first.id);
    if (performance.now() > untilMs) return null;
    await delay(POLL_MS, undefined, { signal: io.signal }).catch(() => {
      throw new CliError('Interrupted.');
    });
  }
}
