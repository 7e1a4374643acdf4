import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Answer, Client } from './client.ts';
import { idOf } from './clients.ts';
import type { AgentHistory, AsyncHistory, FunctionHistory, History, JobHistory } from './record.ts';

const SETTLE_MS = 120_000;
const OUTCOME_UNKNOWN = 150_427;

/**
 * Checks every promise of the service after all faults have ended. Returns a sentence for each broken
 * promise.
 */
export async function brokenPromises(client: Client, history: History, marksDir: string): Promise<readonly string[]> {
  const problems: string[] = [...history.violations];
  const deadlineMs = Date.now() + SETTLE_MS;
  for (const agent of history.agents) problems.push(...(await ofAgent(client, agent)));
  for (const fn of history.functions) problems.push(...(await ofFunction(client, fn)));
  for (const call of history.asyncCalls) problems.push(...(await ofAsyncCall(client, call, marksDir, deadlineMs)));
  for (const job of history.jobs) problems.push(...(await ofJob(client, job, { history, marksDir, deadlineMs })));
  return problems;
}

async function ofAgent(client: Client, agent: AgentHistory): Promise<string[]> {
  if (agent.ids.size === 0) return [];
  if (agent.ids.size > 1) return [`${agent.name}: one key made several instances: ${[...agent.ids].join(', ')}`];
  const path = `/api/agent/${idOf(agent)}`;
  const found = await client.ask('GET', path);
  if (agent.deleteAcked)
    return found?.status === 404 ? [] : [`${agent.name} was deleted, and GET answers ${text(found)}`];
  if (agent.deleteSent) return [];
  const { status, body }: Pick<Answer, 'status' | 'body'> = found ?? { status: 0, body: {} };
  if (status !== 200 || (body.instance as { status?: string }).status !== 'RUNNING') {
    return [`${agent.name} was acknowledged, and GET answers ${text(found)}`];
  }
  const last = await client.ask('POST', `${path}/invoke`, { body: { id: 'last', file: agent.name } });
  if (last?.status !== 200) return [`${agent.name} runs, and a call answers ${text(last)}`];
  return ofCalls(agent, last.body.data as { boot: string; n: number });
}

/**
 * Checks the memory of an agent against its calls. Each call ran at most once, in the order that callers
 * could observe.
 */
function ofCalls({ name, calls }: AgentHistory, last: { readonly boot: string; readonly n: number }): string[] {
  const problems: string[] = [];
  const answered = calls.flatMap(({ id, sentAt, answeredAt, answer }) =>
    answer === null || answeredAt === null ? [] : [{ id, sentAt, answeredAt, ...answer }],
  );
  for (const { id, boot, again } of answered) {
    if (boot !== last.boot)
      problems.push(`${name}: ${id} ran in another process than the last call: its memory is lost`);
    if (again) problems.push(`${name}: ${id} ran twice`);
  }
  if (last.n > calls.length + 1) problems.push(`${name}: ${calls.length + 1} calls were sent, ${last.n} ran`);
  const numbers = new Set(answered.map(({ n }) => n));
  if (numbers.size < answered.length) problems.push(`${name}: two calls have the same number`);
  const ordered = answered.toSorted((a, b) => a.n - b.n);
  for (const [at, later] of ordered.entries()) {
    const overtaken = ordered.slice(0, at).find(earlier => earlier.sentAt > later.answeredAt);
    if (overtaken) problems.push(`${name}: ${later.id} was answered before ${overtaken.id} was sent, and ran after it`);
  }
  return problems;
}

async function ofFunction(client: Client, fn: FunctionHistory): Promise<string[]> {
  const problems: string[] = [];
  const path = `/serverless/v1/functions/${encodeURIComponent(fn.name)}`;
  const latest = await client.ask('GET', `${path}?versionNumber=$latest`, { meta: true });
  const record = latest?.body.function as { environment?: Record<string, string> } | undefined;
  const stored = Number(record?.environment?.GENERATION);
  if (!(stored >= fn.generation && stored <= fn.sentGeneration)) {
    problems.push(`${fn.name}: generation ${fn.generation} was acknowledged, the record is ${text(latest)}`);
  }
  for (const version of fn.published) {
    const answer = await client.ask('GET', `${path}?versionNumber=${version}`, { meta: true });
    if (answer?.body.code !== 0) problems.push(`${fn.name}: version ${version} was published, and is ${text(answer)}`);
  }
  const called = await client.ask('POST', `/serverless/v1/functions/${fn.urn}/invocations`, { body: {} });
  if (called?.status !== 200 || Number(called.body) !== stored) {
    problems.push(`${fn.name}: generation ${stored} is stored, and a call answers ${text(called)}`);
  }
  return problems;
}

async function ofAsyncCall(
  client: Client,
  { mark, requestId }: AsyncHistory,
  marksDir: string,
  deadlineMs: number,
): Promise<string[]> {
  const path = `/serverless/v1/functions/async-results/${requestId}`;
  let found = await client.ask('GET', path);
  while (Date.now() < deadlineMs && ['queued', 'processing'].includes(String(found?.body.status))) {
    await delay(100);
    found = await client.ask('GET', path);
  }
  const runs = runsOf(join(marksDir, mark));
  if (runs > 1) return [`${mark} ran ${runs} times`];
  const status = found?.body.status;
  if (status === 'completed') {
    return runs === 1 && found?.body.result === mark ? [] : [`${mark} ran ${runs} times and is ${text(found)}`];
  }
  // The service that ran the call died, so the outcome is unknown.
  const isUnknown =
    status === 'failed' && (found?.body.error as { code?: number } | undefined)?.code === OUTCOME_UNKNOWN;
  return isUnknown ? [] : [`${mark} was accepted, ran ${runs} times, and is ${text(found)}`];
}

async function ofJob(
  client: Client,
  job: JobHistory,
  { history, marksDir, deadlineMs }: { history: History; marksDir: string; deadlineMs: number },
): Promise<string[]> {
  const path = `/api/jobs/${job.id}`;
  let found = await client.ask('GET', path);
  while (Date.now() < deadlineMs && ['PENDING', 'RUNNING'].includes(String(found?.body.status))) {
    await delay(100);
    found = await client.ask('GET', path);
  }
  const runs = runsOf(join(marksDir, job.id));
  if (found?.status === 404 && !job.acked) return runs === 0 ? [] : [`${job.id} ran, and its record is missing`];
  const problems = runs === 1 ? [] : [`${job.id} ran ${runs} times`];
  const status = job.exitCode === 0 ? 'SUCCEEDED' : 'FAILED';
  if (found?.body.status !== status || found.body.driver_exit_code !== job.exitCode) {
    problems.push(`${job.id} should be ${status} with ${job.exitCode}, and is ${text(found)}`);
  }
  const log = await client.ask('GET', `${path}/logs`);
  const lines = [...Array.from({ length: job.lines }, (_, at) => `line ${at + 1}`), 'end'];
  const logged = String(log?.body.logs).split('\n').slice(0, -1);
  const times = [Number(found?.body.start_time), Number(found?.body.end_time)] as const;
  const mayLack = history.diskFull.some(({ fromMs, toMs }) => times[0] <= toMs && times[1] >= fromMs);
  const isWhole = mayLack ? isPartOf(logged, lines) : logged.join() === lines.join();
  if (!isWhole) problems.push(`${job.id} has the log ${text(log)}, expected ${job.lines} lines`);
  return problems;
}

/** Returns true if `part` contains only lines of `whole`, in the same order. */
function isPartOf(part: readonly string[], whole: readonly string[]): boolean {
  let at = 0;
  for (const line of whole) if (part[at] === line) at += 1;
  return at === part.length;
}

function runsOf(path: string): number {
  try {
    return readFileSync(path, 'utf8').split('\n').length - 1;
  } catch {
    return 0;
  }
}

function text(value: unknown): string {
  return JSON.stringify(value)?.slice(0, 600) ?? 'nothing';
}
