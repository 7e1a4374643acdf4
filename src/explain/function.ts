import { LATEST } from '../core/urn.ts';
import { type FailedCalls, failuresInWords } from './failures.ts';
import type { Rule } from './rules.ts';
import { counted, sentence } from './words.ts';

/** The fields of a function that its explanation uses. */
export interface ExplainedFunction {
  readonly functionVersionUrn: string;
  readonly name: string;
  readonly versionNumber: string;
  readonly kind?: string;
  readonly minInstance?: number;
  readonly maxInstance?: number;
  readonly concurrentNum?: number;
}

/** The answer of `GET …/instances`. A service of an older version does not count waiting calls. */
export interface ExplainedInstances {
  readonly instances: readonly {
    readonly status: string;
    readonly running_calls: number;
    /** Empty for an instance that is not reserved. The maximum of the function counts only those. */
    readonly label?: string;
  }[];
  readonly waiting_calls?: number;
  /** The reasons of failed starts. */
  readonly warnings?: readonly string[];
}

export interface FunctionFacts {
  readonly fn: ExplainedFunction;
  readonly served: ExplainedInstances;
  readonly failed: FailedCalls;
  readonly nowMs: number;
}

/** The largest maximum that a function may have. */
const MAX_INSTANCES = 1000;

export const nameOf = ({ fn }: FunctionFacts) => fn.name.replace(/^0@/, '');
/** Returns true if a function takes calls. The service only stores functions of other kinds. */
export const isServed = ({ fn }: Pick<FunctionFacts, 'fn'>) => fn.kind === 'faas' || fn.kind === 'agent';
/** Returns the number of instances that always run. */
const leastOf = ({ fn }: FunctionFacts) => (fn.kind === 'faas' ? (fn.minInstance ?? 0) : 0);
const ownOf = ({ served }: FunctionFacts) => served.instances.filter(({ label }) => !label);
const readyOf = (facts: FunctionFacts) => ownOf(facts).filter(({ status }) => status === 'ready');
const reservedOf = (facts: FunctionFacts) => facts.served.instances.length - ownOf(facts).length;
const mostOf = ({ fn }: FunctionFacts) => fn.maxInstance ?? Number.POSITIVE_INFINITY;
const slotsOf = ({ fn }: FunctionFacts) => fn.concurrentNum ?? 1;
const hasInstances = (facts: FunctionFacts) => ownOf(facts).length > 0;
const startFails = ({ served }: FunctionFacts) => (served.warnings ?? []).length > 0;

function isFull(facts: FunctionFacts): boolean {
  const ready = readyOf(facts);
  const slots = slotsOf(facts);
  return ready.length >= mostOf(facts) && ready.every(each => each.running_calls >= slots);
}

/** True if calls wait although no instance starts and the maximum is not reached. */
function lacksRoom(facts: FunctionFacts): boolean {
  const { waiting_calls: waiting = 0 } = facts.served;
  const count = ownOf(facts).length;
  return waiting > 0 && count < mostOf(facts) && count === readyOf(facts).length;
}

/** True if the newest failure is that the code or its initializer does not load. */
function codeFails({ failed }: FunctionFacts): boolean {
  return ['4001', '4201', '4211'].includes(failed.calls[0]?.error_code ?? '');
}

/** The sentences about a version of a function, and the command that helps. */
export const FUNCTION_RULES: readonly Rule<FunctionFacts>[] = [
  {
    when: facts => !isServed(facts),
    says: ({ fn }) => `It is only stored: functions of the kind ${fn.kind} take no calls.`,
  },
  {
    when: startFails,
    says: ({ served }) => sentence(`No instance starts: ${(served.warnings ?? []).join('; ')}`),
  },
  { when: facts => startFails(facts) && !codeFails(facts), next: () => 'rookery doctor' },
  {
    when: facts => isServed(facts) && !hasInstances(facts) && !startFails(facts) && leastOf(facts) === 0,
    says: () => 'No instance runs, because no call needs one. The next call starts one.',
  },
  {
    when: facts => isServed(facts) && !hasInstances(facts) && !startFails(facts) && leastOf(facts) > 0,
    says: facts => `It waits for its minimum of ${counted(leastOf(facts), 'instance')}: none runs yet.`,
    next: facts => `rookery wait function ${nameOf(facts)}`,
  },
  {
    when: facts => hasInstances(facts) && readyOf(facts).length === 0,
    says: facts => `${counted(ownOf(facts).length, 'instance')} started, but none is ready yet. Calls wait for them.`,
    next: facts => `rookery wait function ${nameOf(facts)}`,
  },
  {
    when: facts => readyOf(facts).length > 0 && isFull(facts),
    says: facts =>
      `It is at its limit: ${readyOf(facts).length} of ${mostOf(facts)} instances run, each with ${slotsOf(facts)} of ${slotsOf(facts)} calls. Further calls wait.`,
    next: facts => `rookery function update ${nameOf(facts)} --max ${Math.min(MAX_INSTANCES, mostOf(facts) * 2)}`,
  },
  {
    when: facts => readyOf(facts).length > 0 && !isFull(facts),
    says: facts => {
      const running = readyOf(facts).reduce((sum, each) => sum + each.running_calls, 0);
      return `It takes calls: ${readyOf(facts).length} of ${mostOf(facts)} instances are ready and run ${counted(running, 'call')}.`;
    },
  },
  {
    when: facts => reservedOf(facts) > 0,
    says: facts => `It has ${counted(reservedOf(facts), 'reserved instance')} in addition, for calls with a label.`,
  },
  { when: ({ fn }) => fn.kind === 'agent', says: () => 'Agents can be created from it, too.' },
  {
    when: ({ served }) => (served.waiting_calls ?? 0) > 0,
    says: ({ served: { waiting_calls: waiting = 0 } }) =>
      waiting === 1 ? '1 call waits for an instance.' : `${waiting} calls wait for an instance.`,
  },
  {
    when: facts => lacksRoom(facts) && !startFails(facts),
    says: () => 'No further instance starts now: the machine or the tenant may have no room for one.',
    next: () => 'rookery top',
  },
  {
    when: ({ failed }) => failed.calls.length > 0,
    says: ({ failed, nowMs }) => failuresInWords(failed, nowMs),
  },
  {
    when: codeFails,
    says: () => 'Calls fail until the code is repaired.',
    next: facts => `rookery function update ${nameOf(facts)} --code <directory>`,
  },
  {
    when: ({ failed }) => failed.calls.length > 0,
    next: ({ failed }) => `rookery explain call ${failed.calls[0]?.id}`,
  },
  {
    when: facts => isServed(facts) && !hasInstances(facts),
    next: facts => `rookery function invoke ${nameOf(facts)}`,
  },
];

/** Returns the state of a version of a function in one or two words. */
export function stateOf(facts: FunctionFacts): string {
  if (!isServed(facts)) return 'stored';
  const ready = readyOf(facts).length;
  if (ready > 0) return isFull(facts) ? 'at its limit' : 'ready';
  if (hasInstances(facts)) return 'starting';
  return startFails(facts) ? 'failing' : 'idle';
}

/** Returns the failed calls of a version; those of the latest version have its alias, too. */
export function ofVersion({ calls, hasMore }: FailedCalls, { versionNumber }: ExplainedFunction): FailedCalls {
  const isOf = (each: string | undefined) => each === versionNumber || (each === 'latest' && versionNumber === LATEST);
  return { calls: calls.filter(({ version }) => isOf(version)), hasMore };
}
