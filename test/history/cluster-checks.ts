import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { functionUrnOf } from '../../src/core/urn.ts';
import type { FailedRequest, HarmDone, HarmedCluster } from './cluster.ts';
import { LIMITED, LIMITED_INSTANCES } from './cluster-clients.ts';
import type { History } from './record.ts';

/**
 * Time until all work continues after the database or a frozen replica is back. Replicas check and act in
 * turn.
 */
const SETTLE_MS = 15_000;
/** Longest time until a load balancer sends no more requests to a stopped replica. */
const LOOK_MS = 1_500;
/** Tolerance between times of different processes on a busy machine. */
const SLACK_MS = 250;
const MOST_EXAMPLES = 4;
/** Offset from `performance.now()` to the clock that handlers write. */
const CLOCK_OFFSET_MS = Number(process.hrtime.bigint()) / 1e6 - performance.now();

/** Checks the promises that only several replicas make. Returns a sentence for each broken promise. */
export function brokenByCluster(cluster: HarmedCluster, history: History, marksDir: string): readonly string[] {
  return [
    ...unexcusedFailures(cluster),
    ...ofRuns(cluster.done, history, marksDir),
    ...history.staleCalls.filter(call => !mayBeStale(cluster, call)).map(({ text }) => text),
    ...history.sessionMoves
      .filter(({ sentMs, endedMs }) => !cluster.witness.hasChanged(SESSIONS_URN, sentMs, endedMs))
      .map(({ text }) => `${text}, and its owner was the same`),
  ];
}

const SESSIONS_URN = 'sn:cn:yrk:default:function:0@history@sessions';

/** Failed requests, grouped by their excuse. */
export type Failures = Readonly<Record<string, { readonly count: number; readonly examples: readonly string[] }>>;

export function failuresOf(cluster: HarmedCluster): Failures {
  const found: Record<string, { count: number; examples: string[] }> = {};
  for (const failure of cluster.failures) {
    const excuse = excuseOf(cluster, failure) ?? 'nothing';
    found[excuse] ??= { count: 0, examples: [] };
    found[excuse].count += 1;
    if (found[excuse].examples.length < MOST_EXAMPLES) found[excuse].examples.push(textOfFailure(failure));
  }
  return found;
}

function unexcusedFailures(cluster: HarmedCluster): readonly string[] {
  return cluster.failures
    .filter(failure => excuseOf(cluster, failure) === null)
    .map(failure => `nothing was done to who had it: ${textOfFailure(failure)}`);
}

function textOfFailure({ method, path, replica, sentMs, endedMs, status, text }: FailedRequest): string {
  const tookMs = Math.round(endedMs - sentMs);
  return `${method} ${path} by ${replica} at ${seconds(sentMs)} failed after ${tookMs} ms: ${status ?? 'no answer'} ${text}`;
}

/**
 * Returns the excuse of a failed request, or null. A kill or freeze excuses requests in flight on that
 * replica, or on the owner of their agent, job or function. Agents and jobs do not move, so their requests
 * also fail while their replica is down. An unavailable database excuses everything until all replicas have
 * reconnected. The exception is a call of an agent at a replica that has called the agent before. An orderly
 * stop excuses nothing.
 */
function excuseOf(cluster: HarmedCluster, failure: FailedRequest): string | null {
  const { path, replica, sentMs, endedMs } = failure;
  const has = (name: string | undefined, isExcused: (harm: HarmDone) => boolean) =>
    name !== undefined && cluster.done.some(harm => harm.replica === name && isExcused(harm));
  const wasKilled = ({ deaths }: HarmDone) =>
    deaths.some(death => death.toMs >= sentMs - SLACK_MS && death.fromMs <= endedMs + SLACK_MS);
  const wasFrozen = ({ what, fromMs, toMs }: HarmDone) =>
    what === 'freeze' && sentMs <= toMs + SETTLE_MS && endedMs >= fromMs;
  const wasAway = ({ what, fromMs, toMs }: HarmDone) =>
    what === 'kill' && sentMs <= toMs + LOOK_MS && endedMs >= fromMs;
  // Another client deleted the agent.
  if (failure.text.includes('instance exited: deleted')) return 'the agent was deleted';
  if (has(replica, wasKilled)) return 'the replica that took it was killed';
  if (has(replica, wasFrozen)) return 'the replica that took it was frozen';
  const thing = /^\/api\/(?:agent|jobs)\/([^/?]+)/.exec(path)?.[1];
  const home = thing === undefined ? undefined : cluster.witness.homeOf(thing);
  if (has(home, wasAway)) return 'the replica that has the agent or job was away';
  if (has(home, wasFrozen)) return 'the replica that has the agent or job was frozen';
  const urn = urnOf(path);
  for (const owner of urn === null ? [] : cluster.witness.ownersOf(urn, sentMs, endedMs)) {
    if (has(owner, wasKilled)) return 'the owner of the function was killed';
    if (has(owner, wasFrozen)) return 'the owner of the function was frozen';
  }
  const isWarmCall = failure.isWarm && /^\/api\/agent\/[^/]+\/invoke/.test(path);
  const isDatabase = ({ what, fromMs, toMs }: HarmDone) =>
    what === 'database' && sentMs <= toMs + SETTLE_MS && endedMs >= fromMs;
  if (!isWarmCall && cluster.done.some(isDatabase)) return 'the database was away';
  return null;
}

function urnOf(path: string): string | null {
  const long = /^\/serverless\/v1\/functions\/([^/]+)\/invocations/.exec(path)?.[1];
  if (long !== undefined) return functionUrnOf(decodeURIComponent(long));
  const short = /^\/invocations\/([^/]+)\/([^/]+)\/([^/]+)\//.exec(path);
  return short === null ? null : `sn:cn:yrk:${short[1]}:function:0@${short[2]}@${short[3]}`;
}

/**
 * Returns true if the owner was frozen or the database was unavailable, so that a change could not arrive.
 */
function mayBeStale(
  cluster: HarmedCluster,
  { urn, sentMs, endedMs }: { urn: string; sentMs: number; endedMs: number },
) {
  const owners = cluster.witness.ownersOf(functionUrnOf(urn), sentMs, endedMs);
  return cluster.done.some(({ what, replica, fromMs, toMs }) => {
    if (what === 'database') return sentMs <= toMs + SETTLE_MS && endedMs >= fromMs;
    return (
      what === 'freeze' && replica !== null && owners.has(replica) && sentMs <= toMs + LOOK_MS && endedMs >= fromMs
    );
  });
}

interface Run {
  readonly id: string;
  readonly boot: string;
  readonly beginMs: number;
  /** End of the run; null when it was interrupted. */
  endMs: number | null;
}

function ofRuns(done: readonly HarmDone[], history: History, marksDir: string): readonly string[] {
  const problems: string[] = [];
  for (const file of readdirSync(marksDir)) {
    if (file === LIMITED || !/^(agent|race)-c\d+-\d+$/.test(file)) continue;
    const runs = runsIn(join(marksDir, file));
    problems.push(...ranTwice(file, runs), ...ranTogether(file, runs));
  }
  const limited = runsIn(join(marksDir, LIMITED));
  problems.push(...ranTwice(LIMITED, limited), ...tooManyInstances(limited, done));
  const ran = new Set(limited.map(({ id }) => id));
  for (const id of history.answeredLimited) if (!ran.has(id)) problems.push(`${id} was answered, and never ran`);
  return problems;
}

function runsIn(path: string): readonly Run[] {
  const runs = new Map<string, Run[]>();
  for (const line of textOf(path).split('\n').slice(0, -1)) {
    const [what, id = '', boot = '', clock] = line.split(' ');
    const atMs = Number(clock) / 1e6 - CLOCK_OFFSET_MS;
    const key = `${id} ${boot}`;
    const known = runs.get(key) ?? [];
    runs.set(key, known);
    if (what === 'begin') known.push({ id, boot, beginMs: atMs, endMs: null });
    else {
      const open = known.find(run => run.endMs === null);
      if (open) open.endMs = atMs;
    }
  }
  return [...runs.values()].flat().toSorted((a, b) => a.beginMs - b.beginMs);
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function ranTwice(what: string, runs: readonly Run[]): readonly string[] {
  const seen = new Set<string>();
  const problems: string[] = [];
  for (const { id } of runs) {
    if (seen.has(id)) problems.push(`the call ${id} of ${what} ran twice`);
    seen.add(id);
  }
  return problems;
}

/** Checks that an agent ran one call at a time, in one process. */
function ranTogether(agent: string, runs: readonly Run[]): readonly string[] {
  const problems: string[] = [];
  for (const [at, run] of runs.entries()) {
    const before = runs[at - 1];
    if (before === undefined) continue;
    if (before.boot !== run.boot) problems.push(`${agent}: ${before.id} and ${run.id} ran in different processes`);
    if (before.endMs !== null && before.endMs > run.beginMs)
      problems.push(`${agent}: ${run.id} began while ${before.id} ran`);
  }
  return problems;
}

/**
 * Checks at the begin of each call that running calls use no more instances than the function may have. Calls
 * that began before the latest kill or freeze do not count. Their owner is down, and an instance without an
 * owner ends its call.
 */
function tooManyInstances(runs: readonly Run[], done: readonly HarmDone[]): readonly string[] {
  const breaksMs = done
    .flatMap(({ what, fromMs, toMs, deaths }) => [
      ...deaths.map(death => death.toMs),
      ...(what === 'kill' ? [] : [fromMs, toMs]),
    ])
    .toSorted((a, b) => a - b);
  const problems: string[] = [];
  for (const [at, { id, beginMs }] of runs.entries()) {
    const brokenMs = breaksMs.findLast(atMs => atMs <= beginMs) ?? Number.NEGATIVE_INFINITY;
    const boots = new Set<string>();
    for (const other of runs.slice(Math.max(0, at - 200), at + 1)) {
      const isRunning = other.id === id || (other.endMs !== null && other.endMs > beginMs);
      if (isRunning && (other.beginMs >= brokenMs || other.id === id)) boots.add(other.boot);
    }
    if (boots.size > LIMITED_INSTANCES) {
      problems.push(`when ${id} began at ${seconds(beginMs)}, calls ran on ${boots.size} instances`);
    }
  }
  return problems;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
