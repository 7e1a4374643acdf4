import { CALL_CODES } from '../core/codes.ts';
import { agentArguments } from './agent.ts';
import type { Rule } from './rules.ts';
import { inWords, sentence, withoutMs } from './words.ts';

/** The fields of a call of `GET /api/calls/{id}` that its explanation uses. Viewers get no text. */
export interface ExplainedCall {
  readonly id: string;
  readonly kind: 'agent' | 'function';
  readonly agent_id?: string;
  readonly name?: string;
  readonly function?: string;
  readonly outcome: 'ok' | 'error';
  readonly error_code: string | null;
  readonly error?: string;
  readonly start_time: string;
  readonly duration_ms: number;
  readonly queue_ms: number;
  readonly place_ms: number;
  readonly start_ms: number;
  readonly load_ms: number;
  readonly run_ms: number;
}

/** Words of failures of the service, without a number. */
const WORDS: Readonly<Record<string, string>> = {
  cancelled: 'The client left before the answer.',
  deadline_exceeded: 'The call ran longer than its time limit.',
  resource_exhausted: 'Too many calls waited or ran.',
  unavailable: 'The sandbox ended, or the service could not reach it.',
};
/** A stage is named if it took at least this share of the call. */
const LARGE_SHARE = 0.5;
const SLOW_MS = 1000;

const STAGES = {
  queue: 'it waited for a free instance, or for earlier calls',
  place: 'it waited for a place for a new instance',
  start: 'a new instance started',
  load: 'the code of a new instance loaded',
  run: 'the handler ran',
} as const;

const hasCode =
  (...codes: readonly string[]) =>
  ({ error_code: code }: ExplainedCall) =>
    code !== null && codes.includes(code);
const failed = ({ outcome }: ExplainedCall) => outcome === 'error';
const isAgent = ({ kind }: ExplainedCall) => kind === 'agent';
const functionOf = ({ function: name = '' }: ExplainedCall) => name.replace(/^0@/, '');
const isFull = hasCode('150429', '150431', 'resource_exhausted');
const isTimeout = hasCode('4010', 'deadline_exceeded');
const isUnloaded = hasCode('4001', '4201', '4211');

/** The words of the agent of a call for a command; the name of a record has its namespace. */
function agentOf({ name = '', agent_id: id = '' }: ExplainedCall): string {
  const [namespace = '', ...rest] = name.split('/');
  return rest.length === 0 ? id : agentArguments(rest.join('/'), namespace);
}

/** Returns the longest stage of a slow call that took most of the time, or null. */
function longestStage(call: ExplainedCall): keyof typeof STAGES | null {
  const names = Object.keys(STAGES) as (keyof typeof STAGES)[];
  const longest = names.reduce((one, other) => (call[`${other}_ms`] > call[`${one}_ms`] ? other : one));
  const ms = call[`${longest}_ms`];
  return call.duration_ms >= SLOW_MS && ms >= call.duration_ms * LARGE_SHARE ? longest : null;
}

/** The sentences about a call that has ended, and the command that helps. */
export const CALL_RULES: readonly Rule<ExplainedCall>[] = [
  {
    when: call => !failed(call),
    says: call => `It started at ${withoutMs(call.start_time)} and succeeded after ${inWords(call.duration_ms)}.`,
  },
  {
    when: failed,
    says: call =>
      sentence(
        `It started at ${withoutMs(call.start_time)} and failed after ${inWords(call.duration_ms)} with ${call.error_code}${call.error ? `: ${call.error}` : ''}`,
      ),
  },
  { when: call => failed(call) && meaningOf(call) !== null, says: call => meaningOf(call) ?? '' },
  {
    when: call => longestStage(call) !== null,
    says: call => {
      const stage = longestStage(call) ?? 'run';
      return `${inWords(call[`${stage}_ms`])} of this went by while ${STAGES[stage]}.`;
    },
  },
  {
    when: call => failed(call) && isFull(call) && !isAgent(call),
    next: call => `rookery explain function ${functionOf(call)}`,
  },
  { when: call => failed(call) && hasCode('150510')(call), next: () => 'rookery top' },
  {
    when: call => isTimeout(call) && isAgent(call),
    next: call => `rookery agent invoke ${agentOf(call)} --timeout <longer> …`,
  },
  {
    when: call => isTimeout(call) && !isAgent(call),
    next: call => `rookery function update ${functionOf(call)} --timeout <longer>`,
  },
  {
    when: call => isUnloaded(call) && !isAgent(call),
    next: call => `rookery function update ${functionOf(call)} --code <directory>`,
  },
  { when: call => hasCode('4002')(call), next: ({ id }) => `rookery call replay ${id} --code <repaired directory>` },
  { when: call => failed(call) && isAgent(call), next: call => `rookery explain agent ${agentOf(call)}` },
  { when: call => failed(call) && !isAgent(call), next: call => `rookery explain function ${functionOf(call)}` },
  { when: call => !failed(call), next: ({ id }) => `rookery call show ${id}` },
];

/** Returns the meaning of the code of a failure; null if there is none, or the error itself says it. */
function meaningOf({ error_code: code }: ExplainedCall): string | null {
  const known = CALL_CODES.find(each => String(each.code) === code);
  const meaning = known?.meaning.replace(/^`[^`]*`\s*/, '').replaceAll('`', '') || known?.text;
  return meaning === undefined ? (WORDS[code ?? ''] ?? null) : sentence(meaning);
}
