import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Random } from '../parts/random.ts';
import { brokenPromises } from './checks.ts';
import type { Client } from './client.ts';
import { Clients, type Places } from './clients.ts';
import { HarmedCluster } from './cluster.ts';
import { brokenByCluster, type Failures, failuresOf } from './cluster-checks.ts';
import { ClusterClients, registerShared } from './cluster-clients.ts';
import { CODE } from './code.ts';
import type { Harmed } from './harmed.ts';
import { measurePropagation, type Propagation } from './propagation.ts';
import { History } from './record.ts';
import { HarmedService } from './service.ts';

export interface HistoryPlan {
  readonly seed: number;
  /** Duration of the phase with faults. */
  readonly durationMs: number;
  readonly clients: number;
  /** Number of replicas. The default 1 uses the embedded database; several share one PostgreSQL. */
  readonly replicas?: number;
  /** Stops replicas only as an operator does: in order, one at a time. */
  readonly isRolling?: boolean;
  /** Number of updates whose propagation to all replicas is measured. */
  readonly measuredUpdates?: number;
  /** Receives each fault when it begins. */
  readonly onHarm?: (what: string) => void;
}

export interface HistoryReport {
  /** Broken promises, one sentence each. */
  readonly violations: readonly string[];
  readonly harms: Readonly<Record<string, number>>;
  /** Number of requests, by kind and answer. */
  readonly counts: Readonly<Record<string, number>>;
  readonly agents: number;
  readonly asyncCalls: number;
  readonly jobs: number;
  readonly requests?: number;
  readonly failures?: Failures;
  readonly propagation?: Propagation;
}

/** Bounds of the pause between two requests of one client. */
const PAUSE_MS = [5, 60] as const;
/** Share of requests that test several replicas, in a history of several. */
const CLUSTER_PART = 0.35;
/** Longest time until other replicas know a change, even without a notification. */
const EFFECTIVE_MS = 2_000;
/** Duration above which the database is ended twice. */
const LONG_MS = 300_000;

/**
 * Runs a random history. Clients create, call, change and delete, while the service is killed, frozen, or
 * lacks disk or descriptors. Then all faults end, and the service is checked against everything that it
 * acknowledged. The same seed makes the same choices, but not the same timing.
 */
export async function runHistory(plan: HistoryPlan): Promise<HistoryReport> {
  const { seed, replicas = 1, isRolling = false, measuredUpdates = 0 } = plan;
  const python = (await findInterpreters()).at(-1);
  if (!python) throw new Error('no Python interpreter is here');
  const history = new History();
  const harms: Record<string, number> = {};
  const databaseEnds = plan.durationMs > LONG_MS ? 2 : 1;
  const cluster = replicas > 1 ? await HarmedCluster.start({ replicas, seed, databaseEnds, isRolling }) : null;
  const harmed: Harmed = cluster ?? (await HarmedService.start());
  const codeDir = mkdtempSync(join(tmpdir(), 'rookery-history-code-'));
  const marksDir = mkdtempSync(join(tmpdir(), 'rookery-history-marks-'));
  writeFileSync(join(codeDir, 'history.py'), CODE);
  const { client } = harmed;
  const violations: string[] = [];
  let propagation: Propagation | undefined;
  try {
    const effectiveMs = cluster === null ? 0 : EFFECTIVE_MS;
    const places = { codeDir, marksDir, runtime: `python${python.version}`, effectiveMs };
    await registerMarker(client, places);
    if (cluster !== null) await registerShared(client, places);
    if (measuredUpdates > 0) propagation = await measurePropagation(client, places, measuredUpdates);
    const endsAtMs = performance.now() + plan.durationMs;
    const loops = Array.from({ length: plan.clients }, (_, index) =>
      clientLoop({ client, history, places, index, endsAtMs, seed, isCluster: cluster !== null }),
    );
    try {
      await doHarm(harmed, history, harms, { ...plan, endsAtMs });
    } finally {
      await Promise.all(loops);
    }
    await harmed.recovered();
    violations.push(...(await brokenPromises(client, history, marksDir)));
    if (cluster === null) violations.push(...history.staleCalls.map(({ text }) => text));
    else violations.push(...brokenByCluster(cluster, history, marksDir));
  } catch (error) {
    violations.push(`the history could not be finished: ${String(error)} ${String((error as Error).cause ?? '')}`);
  } finally {
    violations.push(...(await harmed.end()));
    rmSync(codeDir, { recursive: true, force: true });
    rmSync(marksDir, { recursive: true, force: true });
  }
  const { agents, asyncCalls, jobs, counts } = history;
  return {
    violations,
    harms,
    counts,
    agents: agents.length,
    asyncCalls: asyncCalls.length,
    jobs: jobs.length,
    ...(cluster && { requests: cluster.asked, failures: failuresOf(cluster) }),
    ...(propagation && { propagation }),
  };
}

async function doHarm(
  harmed: Harmed,
  history: History,
  harms: Record<string, number>,
  { seed, durationMs, endsAtMs, onHarm }: HistoryPlan & { readonly endsAtMs: number },
): Promise<void> {
  const random = new Random(seed);
  while (performance.now() < endsAtMs) {
    await delay(random.integer(...harmed.restMs));
    const harm = harmed.harm(random, 1 - (endsAtMs - performance.now()) / durationMs);
    if (harm === null) continue;
    onHarm?.(harm.name);
    const fromMs = Date.now();
    await harm.run();
    if (harm.fillsDisk) history.diskFull.push({ fromMs, toMs: Date.now() });
    harms[harm.name] = (harms[harm.name] ?? 0) + 1;
  }
}

interface ClientLoop {
  readonly client: Client;
  readonly history: History;
  readonly places: Places;
  readonly index: number;
  readonly endsAtMs: number;
  readonly seed: number;
  readonly isCluster: boolean;
}

async function clientLoop({ client, history, places, index, endsAtMs, seed, isCluster }: ClientLoop): Promise<void> {
  const random = new Random(seed * 1000 + index);
  const doer = new Clients(client, history, random, places, `c${index}`);
  const clusterDoer = isCluster ? new ClusterClients(client, history, random, places, `c${index}`) : null;
  while (performance.now() < endsAtMs) {
    if (clusterDoer !== null && random.chance(CLUSTER_PART)) await clusterDoer.act();
    else await doer.act();
    await delay(random.integer(...PAUSE_MS));
  }
}

/** Registers the function of asynchronous calls, whose runs leave marks on the host. */
async function registerMarker(client: Client, places: { codeDir: string; marksDir: string; runtime: string }) {
  const answer = await client.ask('POST', '/serverless/v1/functions', {
    meta: true,
    body: {
      name: '0@history@marker',
      kind: 'faas',
      runtime: places.runtime,
      cpu: 100,
      memory: 128,
      handler: 'history.mark',
      storageType: 'local',
      codePath: places.codeDir,
      timeout: 30,
      maxInstance: 2,
      concurrentNum: 4,
      rootfs: { mounts: [{ source: places.marksDir, target: '/marks' }] },
    },
  });
  if (answer?.body.code !== 0) throw new Error(`the marker was not registered: ${JSON.stringify(answer)}`);
}
