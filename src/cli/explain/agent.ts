import { AGENT_RULES, agentArguments } from '../../explain/agent.ts';
import { applyRules } from '../../explain/rules.ts';
import { sentence } from '../../explain/words.ts';
import { type Agent, findAgent } from '../agent/records.ts';
import type { ShownEvent } from '../events.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import type { Explanation } from './explanation.ts';
import { readFailedCalls } from './failed-calls.ts';
import { readLogEnd } from './log-end.ts';
import { readRecentEvents } from './recent-events.ts';

const EVENTS = ['created', 'ready', 'paused', 'resumed', 'failed', 'restarting', 'stopping', 'ended'];

/** Explains an agent, also one that is gone, as long as its events are stored. */
export async function explainAgent(
  io: Io,
  given: string,
  options: ClientOptions & { readonly namespace: string },
): Promise<Explanation> {
  const client = await Client.open(options, io);
  const agent = await findAgent(client, given, options.namespace);
  const id = agent?.instance_id;
  const isOfName = ({ namespace, name }: ShownEvent) => namespace === options.namespace && name === given;
  const events =
    id === undefined
      ? await readRecentEvents(io, client, EVENTS, {}, event => event.instance_id === given || isOfName(event))
      : await readRecentEvents(io, client, EVENTS, { agent: id });
  if (agent === null) return explainGone(given, options.namespace, events);
  const failed = await readFailedCalls(client, { agent: agent.instance_id });
  const verdict = applyRules(AGENT_RULES, { agent, failed, nowMs: Date.now() });
  return {
    ...{ kind: 'agent', name: agent.name ? `${agent.namespace}/${agent.name}` : agent.instance_id },
    state: agent.load_error ? `${agent.status} (code not loaded)` : agent.status,
    since: sinceOf(agent, events),
    ...verdict,
    ...(await readLogOf(client, agent)),
    events,
    record: { ...agent, failed_calls: failed.calls },
  };
}

/** Returns the end of the log of an agent that failed, or of its run before the last restart. */
async function readLogOf(client: Client, agent: Agent): Promise<Pick<Explanation, 'log' | 'log_of'>> {
  const path = `/api/agent/${encodeURIComponent(agent.instance_id)}/logs`;
  if (agent.status === 'FAILED' || agent.load_error) {
    return { log: await readLogEnd(client, path), log_of: 'its log' };
  }
  const log = agent.restarts ? await readLogEnd(client, path, { previous: '1' }) : [];
  return { log, log_of: 'its log before the last restart' };
}

function sinceOf(agent: Agent, events: readonly ShownEvent[]): string | null {
  const of = (...types: readonly string[]) => events.findLast(({ type }) => types.includes(type))?.at ?? null;
  const { status, paused_at: pausedAt, start_time: startTime, durable } = agent;
  if (status === 'PAUSED') return pausedAt ?? of('paused');
  if (status === 'SLEEPING') return durable?.slept_at ?? null;
  if (status === 'RUNNING') return of('ready', 'resumed') ?? startTime ?? null;
  return status === 'FAILED' ? of('failed') : of('created', 'restarting', 'stopping');
}

/** Explains an agent without a record. Fails if no stored event is about it either. */
function explainGone(given: string, namespace: string, events: readonly ShownEvent[]): Explanation {
  const last = events.at(-1);
  if (last === undefined) {
    throw new CliError(
      `There is no agent ${namespace}/${given}, and no stored event is about it. "rookery agent list" shows those that exist.`,
    );
  }
  const { instance_id: id } = last;
  const own = events.filter(event => event.instance_id === id);
  // A failure before the last start is no reason for the end.
  const result = own.findLast(({ type }) => type === 'ready' || type === 'failed');
  const failure = result?.type === 'failed' ? result.reason : undefined;
  const wasReady = own.some(({ type }) => type === 'ready');
  const how =
    failure === undefined ? 'It was deleted.' : sentence(`${wasReady ? 'It failed' : 'Its start failed'}: ${failure}`);
  return {
    ...{ kind: 'agent', name: last.name ? `${last.namespace}/${last.name}` : given },
    ...{ state: 'deleted', since: last.at ?? null, log: [], log_of: 'its log', events: own, record: null },
    sentences: [how],
    next: `rookery agent create ${agentArguments(last.name ?? given, namespace)} …`,
  };
}
