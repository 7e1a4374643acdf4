import { isCodeUrl } from '../core/code-package.ts';
import { type FailedCalls, failuresInWords } from './failures.ts';
import type { Rule } from './rules.ts';
import { sentence, withoutMs } from './words.ts';

/** The fields of an agent's record that its explanation uses. A service of another version may omit some. */
export interface ExplainedAgent {
  readonly instance_id: string;
  readonly namespace: string;
  readonly name: string;
  readonly status: string;
  readonly status_reason?: string;
  readonly load_error?: string;
  readonly codePath?: string;
  readonly rootfs?: { readonly mounts?: readonly { readonly source: string; readonly target: string }[] };
  readonly resources?: { readonly memory?: number };
  readonly restarts?: number;
  readonly restart_policy?: { readonly policy: string; readonly max_restarts?: number | null };
  readonly restart_at?: string;
  readonly expires_at?: string;
  readonly on_expiry?: string;
}

export interface AgentFacts {
  readonly agent: ExplainedAgent;
  readonly failed: FailedCalls;
  readonly nowMs: number;
}

const argumentsOf = ({ name, namespace, instance_id: id }: ExplainedAgent) =>
  name ? agentArguments(name, namespace) : id;
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

/** Returns the command that runs repaired code. A restart does not see repairs of uploaded code. */
export function restartOf({ rootfs, codePath }: ExplainedAgent, again: string): string {
  const code = rootfs?.mounts?.find(({ target }) => target === codePath);
  return code !== undefined && isCodeUrl(code.source)
    ? `upload it: "rookery agent create ${again} …" with --replace (a restart runs the code that was uploaded before)`
    : `rookery agent restart ${again}`;
}

/** Returns an agent as the argument of a command, quoted so that a person can copy it. */
export function agentArguments(name: string, namespace: string): string {
  const quoted = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
  return `${quoted(name)}${namespace === 'default' ? '' : ` -n ${quoted(namespace)}`}`;
}

/** Returns the restart policy in words; undefined: the agent has none. */
export function policyOf({ restart_policy: given }: Pick<ExplainedAgent, 'restart_policy'>): string | undefined {
  if (given === undefined) return undefined;
  return given.max_restarts == null ? given.policy : `${given.policy}, at most ${given.max_restarts} in a row`;
}
