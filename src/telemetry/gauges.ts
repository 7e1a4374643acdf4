import { readdirSync } from 'node:fs';
import { type EventLoopUtilization, performance } from 'node:perf_hooks';
import { Counter, Gauge, type Registry } from 'prom-client';
import { common } from './metric-parts.ts';
import type { MetricName } from './metric-table.ts';

/** Resources reserved for one kind of owner (`Size` of `instances/ledger.ts`). */
interface Promised {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly processes: number;
}

/** Counts of agents. */
interface AgentCounts {
  readonly liveInstances: number;
  readonly openCalls: number;
}

/** Numbers that a replica over PostgreSQL reports about itself and the others. */
interface ClusterGauges {
  readonly nodes: number;
  readonly leases: Readonly<Record<string, number>>;
  /** Lease changes since the start of the process, by kind of change. */
  readonly leaseChanges: Readonly<Record<string, number>>;
  readonly heartbeatAgeMs: number;
  readonly feedBehindMs: number;
}

/** The pods of a pool. */
export interface PodCount {
  readonly pool: string;
  readonly free: number;
  readonly claimed: number;
  readonly starting: number;
  readonly overdue: number;
}

/** Sources that are read at each scrape. An absent source counts as 0. */
export interface MetricSources {
  /** Returns true if an agent with this id runs here. */
  readonly isLiveAgent?: (id: string) => boolean;
  readonly agents?: AgentCounts;
  /** Reserved resources by owner, and the maximum as owner `limit`. */
  readonly promises?: () => Readonly<Record<string, Promised>>;
  /** Number of function instances by state. */
  readonly functionInstances?: () => ReadonlyMap<string, number>;
  /** Number of unfinished jobs by status. */
  readonly jobs?: () => Readonly<Record<string, number>>;
  readonly pools?: () => readonly PodCount[];
  /** Number of open connections to other replicas. */
  readonly peerConnections?: () => number;
  /** Number of sandboxes and files that could not be removed yet. */
  readonly leftovers?: () => number;
  /** Number of calls since the start by what became of their records. */
  readonly callRecords?: () => Readonly<Record<'written' | 'dropped' | 'failed', number>> | undefined;
  /** Numbers of the cluster; absent with an embedded database. */
  readonly cluster?: () => ClusterGauges;
}

/** Adds the gauges, which read `sources` at each scrape. */
export function addGauges(registry: Registry, version: string, sources: MetricSources): void {
  const gauge: AddGauge = (name, read) =>
    new Gauge({
      ...common(name, registry),
      collect() {
        this.reset();
        read((value, labels) => (labels === undefined ? this.set(value) : this.set(labels, value)));
      },
    });
  gauge('rookery_build_info', set => set(1, { version, node: process.version }));
  gauge('rookery_live_instances', set => set(sources.agents?.liveInstances ?? 0));
  gauge('rookery_open_calls', set => set(sources.agents?.openCalls ?? 0));
  gauge('rookery_promised', set => {
    for (const [owner, promised] of Object.entries(sources.promises?.() ?? {})) {
      set(promised.cpuMillis, { owner, resource: 'cpu_millis' });
      set(promised.memoryMb, { owner, resource: 'memory_mb' });
      set(promised.processes, { owner, resource: 'processes' });
    }
  });
  gauge('rookery_function_instances', set => {
    for (const [state, count] of sources.functionInstances?.() ?? []) set(count, { state });
  });
  gauge('rookery_jobs', set => {
    for (const [status, count] of Object.entries(sources.jobs?.() ?? {})) set(count, { status });
  });
  gauge('rookery_pool_pods', set => {
    for (const { pool, free, claimed, starting } of sources.pools?.() ?? []) {
      set(free, { pool, state: 'free' });
      set(claimed, { pool, state: 'claimed' });
      set(starting, { pool, state: 'starting' });
    }
  });
  gauge('rookery_pool_pending_pods', set => {
    for (const { pool, overdue } of sources.pools?.() ?? []) set(overdue, { pool });
  });
  gauge('rookery_peer_connections', set => set(sources.peerConnections?.() ?? 0));
  gauge('rookery_leftovers', set => set(sources.leftovers?.() ?? 0));
  new Counter({
    ...common('rookery_call_records_total', registry),
    collect() {
      this.reset();
      for (const [result, count] of Object.entries(sources.callRecords?.() ?? {})) this.inc({ result }, count);
    },
  });
  addClusterMetrics(registry, gauge, () => sources.cluster?.());
  addProcessMetrics(registry, gauge);
}

type AddGauge = (
  name: MetricName,
  read: (set: (value: number, labels?: Record<string, string>) => void) => void,
) => unknown;

function addClusterMetrics(registry: Registry, gauge: AddGauge, read: () => ClusterGauges | undefined): void {
  const add = (name: MetricName, numberOf: (known: ClusterGauges) => number) =>
    gauge(name, set => {
      const known = read();
      if (known !== undefined) set(numberOf(known));
    });
  add('rookery_cluster_nodes', ({ nodes }) => nodes);
  add('rookery_cluster_heartbeat_age_seconds', ({ heartbeatAgeMs }) => heartbeatAgeMs / 1000);
  add('rookery_cluster_feed_behind_seconds', ({ feedBehindMs }) => feedBehindMs / 1000);
  gauge('rookery_cluster_leases', set => {
    for (const [kind, count] of Object.entries(read()?.leases ?? {})) set(count, { kind });
  });
  new Counter({
    ...common('rookery_cluster_lease_changes_total', registry),
    collect() {
      this.reset();
      for (const [change, count] of Object.entries(read()?.leaseChanges ?? {})) this.inc({ change }, count);
    },
  });
}

/**
 * Adds the process metrics with their usual Prometheus names. Unlike prom-client's own collection, starts no
 * timers.
 */
function addProcessMetrics(registry: Registry, gauge: AddGauge): void {
  let cpuSecondsBefore = 0;
  new Counter({
    ...common('process_cpu_seconds_total', registry),
    collect() {
      const { user, system } = process.cpuUsage();
      const cpuSeconds = (user + system) / 1e6;
      this.inc(cpuSeconds - cpuSecondsBefore);
      cpuSecondsBefore = cpuSeconds;
    },
  });
  gauge('process_resident_memory_bytes', set => set(process.memoryUsage.rss()));
  gauge('process_open_fds', set => {
    const count = openFileCount();
    if (count !== null) set(count);
  });
  gauge('process_start_time_seconds', set => set(performance.timeOrigin / 1000));
  gauge('nodejs_heap_used_bytes', set => set(process.memoryUsage().heapUsed));
  gauge('nodejs_external_memory_bytes', set => set(process.memoryUsage().external));
  let before: EventLoopUtilization = performance.eventLoopUtilization();
  gauge('nodejs_eventloop_utilization', set => {
    const now = performance.eventLoopUtilization();
    set(performance.eventLoopUtilization(now, before).utilization);
    before = now;
  });
}

/** Returns the number of open files; null on systems without /proc. */
function openFileCount(): number | null {
  try {
    // Subtracts the descriptor of the directory that is being read.
    return readdirSync('/proc/self/fd').length - 1;
  } catch {
    return null;
  }
}
