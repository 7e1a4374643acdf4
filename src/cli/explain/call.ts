import { CALL_CODES } from '../../core/codes.ts';
import { agentArguments } from '../agent/records.ts';
import { readCallLog } from '../call/call-log.ts';
import { type Call, findCall, inWords, targetOf } from '../call/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { applyRules, type Explanation, type Rule, sentence, withoutMs } from './explanation.ts';
import { lastLines } from './log-end.ts';

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
  ({ error_code: code }: Call) =>
    code !== null && codes.includes(code);
const failed = ({ outcome }: Call) => outcome === 'error';
const isAgent = ({ kind }: Call) => kind === 'agent';
const functionOf = ({ function: name = '' }: Call) => name.replace(/^0@/, '');
const isFull = hasCode('150429', '150431', 'resource_exhausted');
const isTimeout = hasCode('4010', 'deadline_exceeded');
const isUnloaded = hasCode('4001', '4201', '4211');

/** The words of the agent of a call for a command; the name of a record has its namespace. */
function agentOf({ name = '', agent_id: id = '' }: Call): string {
  const [namespace = '', ...rest] = name.split('/');
  return rest.length === 0 ? id : agentArguments(rest.join('/'), namespace);
}

/** Returns the longest stage of a slow call that took most of the time, or null. */
function longestStage(call: Call): keyof typeof STAGES | null {
  const names = Object.keys(STAGES) as (keyof typeof STAGES)[];
  const longest = names.reduce((one, other) => (call[`${other}_ms`] > call[`${one}_ms`] ? other : one));
  const ms = call[`${longest}_ms`];
  return call.duration_ms >= SLOW_MS && ms >= call.duration_ms * LARGE_SHARE ? longest : null;
}

/** The sentences about a call that has ended, and the command that helps. */
export const CALL_RULES: readonly Rule<Call>[] = [
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
function meaningOf({ error_code: code }: Call): string | null {
  const known = CALL_CODES.find(each => String(each.code) === code);
  const meaning = known?.meaning.replace(/^`[^`]*`\s*/, '').replaceAll('`', '') || known?.text;
  return meaning === undefined ? (WORDS[code ?? ''] ?? null) : sentence(meaning);
}

/** Explains a call that the history has, or an asynchronous call that has not ended. */
export async function explainCall(io: Io, id: string, options: ClientOptions): Promise<Explanation> {
  const client = await Client.open(options, io);
  let call: Call;
  try {
    call = await findCall(client, id);
  } catch (error) {
    const open = error instanceof CliError && error.status === 404 ? await explainOpen(client, id) : null;
    if (open === null) throw error;
    return open;
  }
  const log = failed(call) ? await readCallLog(client, call) : null;
  return {
    ...{
      kind: 'call',
      name: `${call.id} of ${targetOf(call)}`,
      state: failed(call) ? 'over (failed)' : 'over (ok)',
      since: null,
    },
    ...applyRules(CALL_RULES, call),
    log: log === null ? [] : lastLines(log.lines.map(({ text }) => text).join('\n')),
    ...{ log_of: 'what its instance printed meanwhile', events: [], record: call },
  };
}

/** Explains an asynchronous call that waits or runs; null if the service has no such call. */
async function explainOpen(client: Client, id: string): Promise<Explanation | null> {
  try {
    const path = `/serverless/v1/functions/async-results/${encodeURIComponent(id)}`;
    const record = await client.json('GET', path);
    const state = String(record.status);
    const waits = state === 'queued' ? 'It waits for an instance.' : 'An instance runs it, or it has just ended.';
    return {
      ...{ kind: 'call', name: id, state, since: typeof record.createdAt === 'string' ? record.createdAt : null },
      ...{ sentences: [waits], next: null, log: [], log_of: 'its log', events: [], record },
    };
  } catch (error) {
    if (error instanceof CliError) return null;
    throw error;
  }
}
