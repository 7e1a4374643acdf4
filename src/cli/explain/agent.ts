import { type Agent, agentArguments, findAgent, policyOf, restartOf } from '../agent/records.ts';
import type { ShownEvent } from '../events.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { applyRules, type Explanation, type Rule, sentence, withoutMs } from './explanation.ts';
import { type FailedCalls, failuresInWords, readFailedCalls } from './failed-calls.ts';
import { readLogEnd } from './log-end.ts';
import { readRecentEvents } from './recent-events.ts';

export interface AgentFacts {
  readonly agent: Agent;
  readonly failed: FailedCalls;
  readonly nowMs: number;
}

const argumentsOf = ({ name, namespace, instance_id: id }: Agent) => (name ? agentArguments(name, namespace) : id);
const hasStatus = (status: string) => (facts: AgentFacts) => facts.agent.status === status;
const isLoaded = ({ agent }: AgentFacts) => agent.status === 'RUNNING' && !agent.load_error;
const endsForGood = ({ agent }: AgentFacts) => agent.status === 'FAILED' && !agent.restart_at;

/** The sentences about an agent, and the command that helps. */
export const AGENT_RULES: readonly Rule<AgentFacts>[] = [
  {
    when: ({ agent }) => agent.status === 'CREATING' && !agent.restarts,
    says: () => 'It starts: it waits for its sandbox, its code and its initializer.',
    next: ({ agent }) => `rookery wait agent ${argumentsOf(agent)}`,
  },
  {
    when: ({ agent }) => agent.status === 'CREATING' && Boolean(agent.restarts),
    says: () => 'It starts again: it waits for its new sandbox, its code and its initializer.',
    next: ({ agent }) => `rookery wait agent ${argumentsOf(agent)}`,
  },
  {
    when: ({ agent }) => agent.status !== 'RUNNING' && Boolean(agent.status_reason),
    says: ({ agent }) => sentence(`Reason: ${agent.status_reason}`),
  },
  {
    when: ({ agent }) => agent.status === 'FAILED' && /out of memory/.test(agent.status_reason ?? ''),
    says: ({ agent }) => `It needed more memory than its limit of ${agent.resources?.memory} MB.`,
    next: ({ agent }) => `rookery agent create ${argumentsOf(agent)} … --replace --memory <more MB>`,
  },
  {
    when: ({ agent }) => agent.status === 'FAILED' && Boolean(agent.restart_at),
    says: ({ agent }) =>
      `It waits for its restart policy (${policyOf(agent)}), which starts it again at ${withoutMs(agent.restart_at ?? '')}.`,
    next: ({ agent }) => `rookery agent logs ${argumentsOf(agent)}`,
  },
  {
    when: facts => endsForGood(facts) && [undefined, 'never'].includes(facts.agent.restart_policy?.policy),
    says: () => 'Nothing starts it again, because it has no restart policy.',
  },
  {
    when: facts => endsForGood(facts) && ![undefined, 'never'].includes(facts.agent.restart_policy?.policy),
    says: ({ agent }) => `Its restart policy (${policyOf(agent)}) does not start it again.`,
  },
  { when: endsForGood, next: ({ agent }) => `rookery agent restart ${argumentsOf(agent)}` },
  {
    when: ({ agent }) => agent.status === 'RUNNING' && Boolean(agent.status_reason),
    says: ({ agent }) => sentence(`The service cannot tell whether it still runs: ${agent.status_reason}`),
    next: () => 'rookery doctor',
  },
  {
    when: ({ agent }) => agent.status === 'RUNNING' && Boolean(agent.load_error),
    says: ({ agent }) => sentence(`Its sandbox runs, but its code could not be loaded: ${agent.load_error}`),
  },
  {
    when: ({ agent }) => agent.status === 'RUNNING' && Boolean(agent.load_error),
    says: () => 'Every call fails with this until the code is repaired and the agent is started again.',
    next: ({ agent }) => restartOf(agent, argumentsOf(agent)),
  },
  {
    when: facts => isLoaded(facts) && !facts.agent.status_reason,
    says: () => 'Its code is loaded, and it takes calls.',
  },
  {
    when: hasStatus('PAUSED'),
    says: () => 'Its processes are frozen and keep their memory. It waits for a resume, and calls fail until then.',
    next: ({ agent }) => `rookery agent resume ${argumentsOf(agent)}`,
  },
  {
    when: hasStatus('SLEEPING'),
    says: () => 'It has no sandbox. Its next call starts it with its saved state.',
    next: ({ agent }) => `rookery agent wake ${argumentsOf(agent)}`,
  },
  {
    when: hasStatus('STOPPING'),
    says: () => 'It is being deleted: it waits for its pre_stop and for the end of its processes.',
    next: ({ agent }) => `rookery wait agent ${argumentsOf(agent)} --for deleted`,
  },
  {
    when: ({ agent }) => Boolean(agent.restarts),
    says: ({ agent }) => `It was restarted ${agent.restarts === 1 ? 'once' : `${agent.restarts} times`}.`,
  },
  {
    when: ({ agent }) => Boolean(agent.expires_at),
    says: ({ agent }) =>
      `Its time to live ends at ${withoutMs(agent.expires_at ?? '')}; then the service ${agent.on_expiry === 'pause' ? 'pauses' : 'deletes'} it.`,
  },
  {
    when: ({ failed }) => failed.calls.length > 0,
    says: ({ failed, nowMs }) => failuresInWords(failed, nowMs),
    next: ({ failed }) => `rookery explain call ${failed.calls[0]?.id}`,
  },
];

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
  const events = await readRecentEvents(io, client, EVENTS, event =>
    id === undefined ? event.instance_id === given || isOfName(event) : event.instance_id === id,
  );
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
