import { resolveAgent } from '../agent/records.ts';
import { parseFunction } from '../function/records.ts';
import { Client } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printable, printJson, printWarning, withSpinner } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import { type Answer, differencesOf, HIDDEN, recordedAnswer } from './compare.ts';
import { type Call, findCall, readCalls } from './records.ts';
import { answerOf, inputOf, placeOfFunction, recordedAgain, type SentCall, sendInput } from './replay.ts';
import { type Place, type ReplayOptions, withCopy } from './replay-copy.ts';

interface ReplayAllOptions extends ReplayOptions {
  readonly agent?: string;
  readonly namespace: string;
  readonly function?: string;
  readonly since?: string;
  readonly limit: string;
  readonly timeout: string;
}

/** The replay of one call. */
interface Replayed {
  readonly recorded: Answer;
  /** Null: the call was skipped. */
  readonly new: Answer | null;
  readonly different: readonly string[];
  /** The reason why the call was not replayed or compared; `''`: it was. */
  readonly skipped: string;
}

const MAX_LIMIT = 1000;
/** Time in which the service reports a call that took too long. */
const GRACE_MS = 2000;
/** Characters of an answer in the line of a call. */
const ANSWER_CHARS = 60;

/**
 * Runs recorded calls of an agent or function again, oldest first, and prints each that differs. Returns the
 * exit code.
 */
export async function replayCalls(io: Io, options: ReplayAllOptions): Promise<number> {
  const { agent, function: name, limit: given } = options;
  if ((agent === undefined) === (name === undefined)) throw usageError('--all needs either --agent or --function.');
  checkOptions(options);
  const limit = Number(given);
  if (!/^\d+$/.test(given) || limit < 1 || limit > MAX_LIMIT) {
    throw usageError(`--limit must be a whole number from 1 to ${MAX_LIMIT}, not ${JSON.stringify(given)}.`);
  }
  const timeoutMs = parseDurationMs(options.timeout, '--timeout');
  const client = await Client.open(options, io);
  const id = agent === undefined ? undefined : await resolveAgent(client, agent, options.namespace);
  const functionName = name === undefined ? undefined : parseFunction(name);
  const query = new URLSearchParams(id === undefined ? { function: functionName ?? '' } : { agent: id });
  if (options.since !== undefined) query.set('after', options.since);
  const found = await readCalls(client, query, limit + 1);
  if (found.length > limit) printWarning(io, `only the newest ${limit} calls are replayed (--limit)`);
  const calls = found.slice(0, limit).reverse();
  if (calls.length === 0) throw new CliError('The history has no call to replay.');
  const run = (client: Client, io: Io, place: Place) => replayInOrder(client, io, { place, calls, timeoutMs });
  const ofFunction = { kind: 'function', function: calls[0]?.function ?? '' } as const;
  const replayed =
    id === undefined
      ? await run(client, io, await placeOfFunction(client, ofFunction, options.version))
      : await withCopy(io, { agent_id: id, name: calls.at(-1)?.name ?? '' }, options, run);
  return print(io, replayed, options.json === true);
}

function checkOptions({ agent, version, code, allowWrites }: ReplayAllOptions): void {
  if (agent !== undefined && version !== undefined) throw usageError('--version is for functions: use --code.');
  if (agent === undefined && (code !== undefined || allowWrites === true)) {
    throw usageError('--code and --allow-writes are for agents: publish the code and use --version.');
  }
}

interface Replay {
  readonly place: Place;
  /** Oldest first. */
  readonly calls: readonly Call[];
  /** Longest time of one call. */
  readonly timeoutMs: number;
}

/** Sends all inputs before it reads records, which appear half a second after their calls. */
async function replayInOrder(client: Client, io: Io, { place, calls, timeoutMs }: Replay): Promise<Replayed[]> {
  const isAgent = place.query.agent !== undefined;
  const ended: { readonly call: Call; readonly sent: SentCall | string }[] = [];
  let late: Call | undefined;
  await withSpinner(io, `replaying ${calls.length} calls`, async () => {
    for (const { id } of calls) {
      const call = await findCall(client, id);
      if (late !== undefined) {
        ended.push({ call, sent: `the call ${late.id} took longer than --timeout and may still run` });
        continue;
      }
      const input = replayableInput(call);
      if (input instanceof CliError) {
        ended.push({ call, sent: input.message });
        continue;
      }
      const sent = await sendInTime(client, place, input, timeoutMs);
      ended.push({ call, sent });
      // An agent runs one call at a time, so the next calls would wait for this one.
      if (isAgent && isLate(sent, timeoutMs)) late = call;
    }
  });
  const replayed: Replayed[] = [];
  for (const { call, sent } of ended) replayed.push(await compare(client, io, place, { call, sent, timeoutMs }));
  return replayed;
}

/** Returns the input, or the reason why the call cannot be replayed. */
function replayableInput(call: Call): string | CliError {
  // Its outcome says nothing about the code.
  if (call.instance_id === '' || call.error_code === 'cancelled')
    return new CliError('the recorded outcome is not that of the code');
  try {
    return inputOf(call);
  } catch (error) {
    if (error instanceof CliError) return error;
    throw error;
  }
}

async function sendInTime(client: Client, place: Place, input: string, timeoutMs: number): Promise<SentCall> {
  const isAgent = place.query.agent !== undefined;
  const headers: Record<string, string> = isAgent ? { 'x-invoke-timeout-ms': String(timeoutMs) } : {};
  const startedAt = performance.now();
  try {
    return await sendInput(client, place, input, { timeoutMs: timeoutMs + GRACE_MS, headers });
  } catch (error) {
    const elapsedMs = performance.now() - startedAt;
    if (!(error instanceof CliError) || elapsedMs < timeoutMs) throw error;
    return { traceId: '', elapsedMs, result: { error } };
  }
}

function isLate({ elapsedMs, result }: SentCall, timeoutMs: number): boolean {
  return 'error' in result && elapsedMs >= timeoutMs;
}

async function compare(
  client: Client,
  io: Io,
  place: Place,
  { call, sent, timeoutMs }: { readonly call: Call; readonly sent: SentCall | string; readonly timeoutMs: number },
): Promise<Replayed> {
  const recorded = recordedAnswer(call);
  if (typeof sent === 'string') return { recorded, new: null, different: [], skipped: sent };
  if (isLate(sent, timeoutMs)) return { recorded, new: lateAnswer(place, sent), different: ['time'], skipped: '' };
  try {
    // A record is cut and has hidden values in the same way.
    const needsRecord = 'error' in sent.result || recorded.is_output_cut || recorded.output?.includes(HIDDEN) === true;
    const answer = (needsRecord ? await recordedAgain(client, io, place, sent) : null) ?? answerOf(place, sent);
    return { recorded, new: answer, different: differencesOf(recorded, answer), skipped: '' };
  } catch (error) {
    if (!(error instanceof CliError) || io.signal.aborted) throw error;
    return { recorded, new: null, different: [], skipped: error.message };
  }
}

function lateAnswer({ target }: Place, { elapsedMs }: SentCall): Answer {
  return {
    ...{ id: '-', target, outcome: 'error', error_code: null, error: 'it took longer than --timeout', output: null },
    ...{ duration_ms: elapsedMs, output_bytes: 0, is_output_cut: false, is_recorded: false },
  };
}

function print(io: Io, replayed: readonly Replayed[], asJson: boolean): number {
  const skipped = replayed.filter(each => each.skipped !== '');
  const differing = replayed.filter(({ different }) => different.length > 0);
  const counts = {
    ...{ same: replayed.length - skipped.length - differing.length, differ: differing.length },
    skipped: skipped.length,
  };
  if (asJson) printJson(io, { calls: replayed, ...counts });
  else {
    for (const each of [...differing, ...skipped]) io.out.write(`${printable(lineOf(each))}\n`);
    const rest = counts.skipped === 0 ? '' : `, ${counts.skipped} skipped`;
    const noun = replayed.length === 1 ? 'call' : 'calls';
    io.out.write(`${replayed.length} ${noun}: ${counts.same} same, ${counts.differ} differ${rest}\n`);
  }
  return counts.differ > 0 || counts.same === 0 ? EXIT.failure : EXIT.ok;
}

function lineOf({ recorded, new: answer, different, skipped }: Replayed): string {
  if (answer === null) return `${recorded.id}  skipped: ${skipped}`;
  return `${recorded.id}  ${different.join(', ')}  ${shortOf(recorded)} → ${shortOf(answer)}`;
}

/** Returns the output or the first line of the error, cut to fit into a line. */
function shortOf({ outcome, error_code: code, error, output }: Answer): string {
  const text = outcome === 'ok' ? (output ?? '') : `error ${code ?? ''} ${error.split('\n', 1)[0]}`;
  return text.length <= ANSWER_CHARS ? text : `${text.slice(0, ANSWER_CHARS)}…`;
}
