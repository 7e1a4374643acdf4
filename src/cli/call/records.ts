import type { ExplainedCall } from '../../explain/call.ts';
import type { WaterfallCall } from '../../explain/waterfall.ts';
import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';

/** A call of `GET /api/calls`. Viewers get no texts. */
export interface Call extends ExplainedCall, WaterfallCall {
  readonly version?: string;
  readonly instance_id: string;
  readonly mode: string;
  readonly caller: string;
  readonly trace_id: string;
  /** The call whose handler made this one; null when the history has none. */
  readonly parent_id: string | null;
  readonly input_bytes: number;
  readonly output_bytes: number;
  readonly input?: string;
  readonly output?: string | null;
  readonly is_input_cut?: boolean;
  readonly is_output_cut?: boolean;
  /** Spans and attributes above the limits. */
  readonly dropped_spans?: number;
}

/** Returns the name of what the call ran: `default/hello`, `demo@hello:v1`. */
export function targetOf({
  kind,
  name,
  agent_id,
  function: functionName = '',
  version,
}: Pick<Call, 'kind' | 'name' | 'agent_id' | 'function' | 'version'>): string {
  if (kind === 'agent') return name || (agent_id ?? '');
  return `${functionName.replace(/^0@/, '')}:${version}`;
}

/**
 * Returns a recorded call by its id, or by the id of its trace: the first call of the trace. Fails if the
 * history does not have it.
 */
export async function findCall(client: Client, id: string): Promise<Call> {
  try {
    return await getCall(client, id);
  } catch (error) {
    if (!(error instanceof CliError) || error.status !== 404) throw error;
    const calls = await readCalls(client, new URLSearchParams({ trace_id: id }), MAX_OF_TRACE);
    const first = calls.findLast(({ parent_id }) => parent_id === null) ?? calls.at(-1);
    if (first === undefined) throw error;
    return await getCall(client, first.id);
  }
}

async function getCall(client: Client, id: string): Promise<Call> {
  return (await client.json('GET', `/api/calls/${encodeURIComponent(id)}`)).call as unknown as Call;
}

/** Calls of a trace that are read to find its first one. */
const MAX_OF_TRACE = 1000;

/** Most calls of one handler that `call show` prints. */
const MAX_MADE = 50;

/** Returns the recorded calls that the handler of a call made, oldest first: the newest 50. */
export async function findCallsMadeBy(client: Client, id: string): Promise<readonly Call[]> {
  const query = new URLSearchParams({ parent: id, limit: String(MAX_MADE) });
  return [...((await client.json('GET', `/api/calls?${query}`)).calls as readonly Call[])].reverse();
}

/** A recording of `GET /api/recordings`. */
export interface Recording {
  readonly agent_id?: string;
  readonly function?: string;
  readonly end_time: string;
}

/** Returns the end of the recording of an agent; undefined: it has none, or the service has no recordings. */
export async function endOfRecording(client: Client, id: string): Promise<string | undefined> {
  try {
    const { recordings } = await client.json('GET', '/api/recordings');
    if (!Array.isArray(recordings)) return undefined;
    return (recordings as readonly Recording[]).find(({ agent_id: agent }) => agent === id)?.end_time;
  } catch (error) {
    if (error instanceof CliError && error.status === 404) return undefined;
    throw error;
  }
}

/** Calls that one request asks for. */
const PAGE = 100;

/** Returns the matching calls, newest first, at most `limit`. */
export async function readCalls(client: Client, filter: URLSearchParams, limit: number): Promise<readonly Call[]> {
  const query = new URLSearchParams(filter);
  const calls: Call[] = [];
  for (let cursor: string | null = ''; cursor !== null && calls.length < limit; ) {
    query.set('limit', String(Math.min(PAGE, limit - calls.length)));
    query.set('cursor', cursor);
    const page = await client.json('GET', `/api/calls?${query}`);
    calls.push(...(page.calls as readonly Call[]));
    cursor = page.next_cursor as string | null;
  }
  return calls;
}
