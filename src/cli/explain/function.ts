import { LATEST } from '../../core/urn.ts';
import { callMeta, metaPath } from '../function/meta-call.ts';
import { functionPath, functionUrl, parseNamedVersion } from '../function/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';
import { applyRules, counted, type Explanation, type Rule, sentence } from './explanation.ts';
import { type FailedCalls, failuresInWords, readFailedCalls } from './failed-calls.ts';
import { readLogEnd } from './log-end.ts';
import { readRecentEvents } from './recent-events.ts';

/** The fields of a function that its explanation uses. */
interface FunctionRecord {
  readonly functionVersionUrn: string;
  readonly name: string;
  readonly versionNumber: string;
  readonly kind?: string;
  readonly minInstance?: number;
  readonly maxInstance?: number;
  readonly concurrentNum?: number;
}

/** The answer of `GET …/instances`. A service of an older version does not count waiting calls. */
interface Served {
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
  readonly fn: FunctionRecord;
  readonly served: Served;
  readonly failed: FailedCalls;
  readonly nowMs: number;
}

/** The largest maximum that a function may have. */
const MAX_INSTANCES = 1000;

const nameOf = ({ fn }: FunctionFacts) => fn.name.replace(/^0@/, '');
const isServed = ({ fn }: FunctionFacts) => fn.kind === 'faas';
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
    says: () => 'Agents are created from it. It takes no calls itself, because its kind is not faas.',
    next: ({ fn }) => `rookery agent create <name> --urn ${fn.functionVersionUrn}`,
  },
  {
    when: startFails,
    says: ({ served }) => sentence(`No instance starts: ${(served.warnings ?? []).join('; ')}`),
  },
  { when: facts => startFails(facts) && !codeFails(facts), next: () => 'rookery doctor' },
  {
    when: facts => isServed(facts) && !hasInstances(facts) && !startFails(facts) && !facts.fn.minInstance,
    says: () => 'No instance runs, because no call needs one. The next call starts one.',
  },
  {
    when: facts => isServed(facts) && !hasInstances(facts) && !startFails(facts) && Boolean(facts.fn.minInstance),
    says: ({ fn }) => `It waits for its minimum of ${counted(fn.minInstance ?? 0, 'instance')}: none runs yet.`,
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

/** Explains a version of a function. */
export async function explainFunction(io: Io, given: string, options: ClientOptions): Promise<Explanation> {
  const { name, version } = parseNamedVersion(given);
  const client = await Client.open(options, io);
  const answer = await callMeta(client, 'GET', metaPath(functionUrl(name), { versionNumber: version }));
  const fn = answer.function as FunctionRecord;
  const { functionVersionUrn: urn } = fn;
  const events = await readRecentEvents(io, client, ['created', 'ready', 'failed', 'ended', 'scaled'], event => {
    return event.function === urn;
  });
  const served: Served = fn.kind === 'faas' ? await readServed(client, urn) : { instances: [] };
  const failed = await readFailedCalls(client, { function: urn });
  const isOfVersion = (each: string | undefined) =>
    each === fn.versionNumber || (each === 'latest' && fn.versionNumber === LATEST);
  const calls = failed.calls.filter(call => isOfVersion(call.version));
  const facts = { fn, served, failed: { ...failed, calls }, nowMs: Date.now() };
  const log =
    calls.length === 0 || served.instances.length === 0 ? [] : await readLogEnd(client, functionPath(urn, 'logs'));
  const shown = fn.versionNumber === LATEST ? '' : `:${fn.versionNumber}`;
  return {
    ...{ kind: 'function', name: `${nameOf(facts)}${shown}`, state: stateOf(facts), since: null },
    ...applyRules(FUNCTION_RULES, facts),
    ...{ log, log_of: 'the log of its instances', events },
    record: { ...fn, ...served, failed_calls: calls },
  };
}

/** Reads the instances without printing the warnings, which become sentences. */
async function readServed(client: Client, urn: string): Promise<Served> {
  return JSON.parse(await client.text('GET', functionPath(urn, 'instances'))) as Served;
}

function stateOf(facts: FunctionFacts): string {
  if (!isServed(facts)) return 'registered';
  const ready = readyOf(facts).length;
  if (ready > 0) return isFull(facts) ? 'at its limit' : 'ready';
  if (hasInstances(facts)) return 'starting';
  return startFails(facts) ? 'failing' : 'idle';
}
