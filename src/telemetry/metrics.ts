import { readdirSync } from 'node:fs';
import { type EventLoopUtilization, performance } from 'node:perf_hooks';
import { Counter, Gauge, Registry } from 'prom-client';
import { CALL_CODES } from '../core/codes.ts';
import { LIMITS } from '../core/limits.ts';
import { CallCounts, type CountedCalls, countedOf, isErrorOutcome } from './call-counts.ts';
import { FastHistogram, type Observer } from './histogram.ts';
import { METRICS, type MetricDefinition, type MetricName } from './metric-table.ts';

/** Reports of an HTTP entry (`EntryMetrics` of `http/entry.ts`). */
export interface EntryMetrics {
  /** `route` is the pattern of a route, never a path as it was sent; `''` for an unknown one. */
  observeRequest(method: string, route: string, status: number, seconds: number): void;
  /** Something threw on the way of one request, where nobody caught it. */
  uncaught(): void;
  /** The metrics that one tenant may see; null: all of them. */
  render(tenant: string | null): Promise<{ readonly contentType: string; readonly body: string }>;
}

/** Promised to one kind of owner (`Size` of `instances/ledger.ts`). */
interface Promised {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly processes: number;
}

/** Reports of starts and ends (`InstanceMetrics` of `instances/contract.ts`). */
export interface InstanceMetrics {
  created(driver: string, outcome: 'created' | 'failed', durationMs: number): void;
  exited(driver: string): void;
}

/** Reports of jobs (`JobMetrics` of `jobs/job-metrics.ts`). */
export interface JobMetrics {
  started(waitedMs: number): void;
  attempted(status: string, ranMs: number): void;
  ended(status: string): void;
}

/** Reports of requests that go to other replicas (`ForwardMetrics` of `cluster/forwarder.ts`). */
export interface ForwardMetrics {
  forwarded(result: string): void;
  hop(seconds: number): void;
}

/** Counts that are made only when somebody looks. */
export interface Gauges {
  readonly liveInstances: number;
  readonly openCalls: number;
}

/** What a replica over PostgreSQL knows of itself and the others. */
export interface ClusterGauges {
  readonly nodes: number;
  readonly leases: Readonly<Record<string, number>>;
  /** Since the start of the process. */
  readonly leaseChanges: Readonly<Record<string, number>>;
  readonly heartbeatAgeMs: number;
  readonly feedBehindMs: number;
}

/** Stages of one call of a function, milliseconds. */
export interface FunctionTimings {
  readonly queueMs: number;
  /** 0: the instance was there. */
  readonly startMs: number;
  readonly loadMs: number;
}

export interface Metrics {
  entry(name: 'frontend' | 'meta_service'): EntryMetrics;
  readonly instances: InstanceMetrics;
  /** A restart of an agent by its policy. */
  readonly policyRestarted: (outcome: 'restarted' | 'failed') => void;
  readonly jobs: JobMetrics;
  /** `outcome`: `ok`, the number of a failure of user code, or an error code of ours. `agentId` may be one that there is not. */
  readonly invoked: (outcome: string, seconds: number, agentId: string) => void;
  /** It was deleted: its calls are counted no more. */
  agentGone(agentId: string): void;
  /** What `MetricsHistory` looks at. */
  readonly counted: {
    service(): CountedCalls;
    /** By `functionKey`. */
    functions(): Iterable<readonly [string, CountedCalls]>;
    agents(): Iterable<readonly [string, CountedCalls]>;
  };
  /** `code`: `ok`, or the code of the failure. `timings` are null when the call got no slot. */
  readonly functionInvoked: (
    tenant: string,
    name: string,
    code: string,
    seconds: number,
    timings: FunctionTimings | null,
  ) => void;
  /** An error that nobody caught; the process lives on. */
  uncaught(): void;
  /** Where the gauges are read, from now on: the agents have them. Until then they are 0. */
  readGaugesFrom(gauges: Gauges): void;
  /** Where what the machine has promised is counted, by owner and for `limit`. */
  readPromisesFrom(read: () => Readonly<Record<string, Promised>>): void;
  /** Where the states of service instances are counted. */
  readFunctionInstancesFrom(count: () => ReadonlyMap<string, number>): void;
  /** Where the jobs that are not over are counted, by status. */
  readJobsFrom(count: () => Readonly<Record<string, number>>): void;
  /** Where the pods of pools are counted. */
  readPoolsFrom(count: () => readonly PodCount[]): void;
  readonly forwards: ForwardMetrics;
  /** Where the connections to other replicas are counted. */
  readPeerConnectionsFrom(count: () => number): void;
  /** Where what could not be removed is counted. */
  readLeftoversFrom(count: () => number): void;
  /** Where the state of the cluster is read; until then, and with an embedded database, it is 0. */
  readClusterFrom(read: () => ClusterGauges): void;
}

/** The pods of one pool. */
export interface PodCount {
  readonly pool: string;
  readonly free: number;
  readonly claimed: number;
  readonly starting: number;
  readonly overdue: number;
}

/** Names of functions that have a label of their own; a label for everything that callers make up would have no bound. */
const MAX_FUNCTION_LABELS = 1000;

/** The metrics of one service. No timer runs for them: what can be read at the scrape is read there. */
export function createMetrics(options: { readonly version: string }): Metrics {
  const registry = new Registry();
  let gauges: Gauges | undefined;
  let promises: (() => Readonly<Record<string, Promised>>) | undefined;
  let functionInstances: (() => ReadonlyMap<string, number>) | undefined;
  let leftovers: (() => number) | undefined;
  let peerConnections: (() => number) | undefined;
  let cluster: (() => ClusterGauges) | undefined;
  let pools: (() => readonly PodCount[]) | undefined;
  let openJobs: (() => Readonly<Record<string, number>>) | undefined;

  const gauge: AddGauge = (name, read) =>
    new Gauge({
      ...common(name, registry),
      collect() {
        this.reset();
        read((value, labels) => (labels === undefined ? this.set(value) : this.set(labels, value)));
      },
    });

  gauge('rookery_build_info', set => set(1, { version: options.version, node: process.version }));
  gauge('rookery_live_instances', set => set(gauges?.liveInstances ?? 0));
  gauge('rookery_open_calls', set => set(gauges?.openCalls ?? 0));
  gauge('rookery_promised', set => {
    for (const [owner, promised] of Object.entries(promises?.() ?? {})) {
      set(promised.cpuMillis, { owner, resource: 'cpu_millis' });
      set(promised.memoryMb, { owner, resource: 'memory_mb' });
      set(promised.processes, { owner, resource: 'processes' });
    }
  });
  const requests = histogram('rookery_http_request_seconds', registry);
  const calls = histogram('rookery_invocation_seconds', registry);
  const creates = histogram('rookery_create_seconds', registry);
  gauge('rookery_function_instances', set => {
    for (const [state, count] of functionInstances?.() ?? []) set(count, { state });
  });
  const functionCalls = histogram('rookery_function_invocation_seconds', registry);
  const functionQueues = histogram('rookery_function_queue_seconds', registry);
  const coldStarts = histogram('rookery_function_cold_start_seconds', registry);
  const functionObservers = new Map<string, Map<string, FunctionObservers>>();
  let functionLabels = 0;
  const observersOf = (tenant: string, name: string): FunctionObservers => {
    const known = functionObservers.get(tenant)?.get(name);
    if (known !== undefined) return known;
    // Those above the bound are one, which belongs to nobody.
    const [ofTenant, ofName] = functionLabels < MAX_FUNCTION_LABELS ? [tenant, name] : ['', 'other'];
    const byName = remembered(functionObservers, ofTenant, () => new Map<string, FunctionObservers>());
    return remembered(byName, ofName, () => {
      functionLabels += 1;
      return { tenant: ofTenant, name: ofName, queue: functionQueues.labels(ofTenant, ofName), calls: new Map() };
    });
  };
  const exits = new Counter(common('rookery_instance_exits_total', registry));
  const policyRestarts = new Counter(common('rookery_policy_restarts_total', registry));
  const forwards = new Counter(common('rookery_forwarded_total', registry));
  const hops = histogram('rookery_forward_seconds', registry).labels();
  gauge('rookery_peer_connections', set => set(peerConnections?.() ?? 0));
  gauge('rookery_jobs', set => {
    for (const [status, count] of Object.entries(openJobs?.() ?? {})) set(count, { status });
  });
  gauge('rookery_pool_pods', set => {
    for (const { pool, free, claimed, starting } of pools?.() ?? []) {
      set(free, { pool, state: 'free' });
      set(claimed, { pool, state: 'claimed' });
      set(starting, { pool, state: 'starting' });
    }
  });
  gauge('rookery_pool_pending_pods', set => {
    for (const { pool, overdue } of pools?.() ?? []) set(overdue, { pool });
  });
  gauge('rookery_leftovers', set => set(leftovers?.() ?? 0));
  addClusterMetrics(registry, gauge, () => cluster?.());
  const jobEnds = new Counter(common('rookery_job_ends_total', registry));
  const jobWaits = histogram('rookery_job_wait_seconds', registry);
  const jobRuns = histogram('rookery_job_run_seconds', registry);
  addProcessMetrics(registry, gauge);

  const uncaught = new Counter(common('rookery_uncaught_errors_total', registry));
  const callObservers = new Map<string, Observer>();
  const agentCalls = new Map<string, CallCounts>();
  const allFunctions = () =>
    [...functionObservers].flatMap(([tenant, byName]) =>
      [...byName].map(([name, observers]) => [functionKey(tenant, name), observers] as const),
    );
  return {
    entry: name => ({
      observeRequest: requestObserver(requests, name),
      uncaught: () => uncaught.labels('request').inc(),
      render: async tenant => ({
        contentType: registry.contentType,
        body: ofTenant(await registry.metrics(), tenant),
      }),
    }),
    uncaught: () => uncaught.labels('process').inc(),
    instances: {
      created: (driver, outcome, durationMs) => creates.labels(driver, outcome).observe(durationMs / 1000),
      exited: driver => exits.labels(driver).inc(),
    },
    policyRestarted: outcome => policyRestarts.labels(outcome).inc(),
    jobs: {
      started: waitedMs => jobWaits.labels().observe(waitedMs / 1000),
      attempted: (status, ranMs) => jobRuns.labels(status).observe(ranMs / 1000),
      ended: status => jobEnds.labels(status).inc(),
    },
    forwards: {
      forwarded: result => forwards.labels(result).inc(),
      hop: seconds => hops.observe(seconds),
    },
    readPeerConnectionsFrom(count) {
      peerConnections = count;
    },
    invoked(outcome, seconds, agentId) {
      const label = outcomeLabel(outcome);
      remembered(callObservers, label, () => calls.labels(label)).observe(seconds);
      const known = agentCalls.get(agentId);
      if (known !== undefined) known.observe(seconds, isErrorOutcome(outcome));
      else if (outcome === 'ok' && agentCalls.size < LIMITS.historySubjects) {
        // Callers make ids up: one that has answered well is there.
        const counts = new CallCounts();
        counts.observe(seconds, false);
        agentCalls.set(agentId, counts);
      }
    },
    agentGone: agentId => void agentCalls.delete(agentId),
    counted: {
      service: () =>
        countedOf([...outcomesOf(callObservers), ...allFunctions().flatMap(([, one]) => outcomesOf(one.calls))]),
      functions: () => allFunctions().map(([key, one]) => [key, countedOf(outcomesOf(one.calls))] as const),
      agents: () => agentCalls,
    },
    functionInvoked(tenant, name, code, seconds, timings) {
      const observers = observersOf(tenant, name);
      const label = outcomeLabel(code);
      remembered(observers.calls, label, () => functionCalls.labels(observers.tenant, observers.name, label)).observe(
        seconds,
      );
      if (timings === null) return;
      observers.queue.observe(timings.queueMs / 1000);
      if (timings.startMs === 0) return;
      coldStarts.labels('start').observe(timings.startMs / 1000);
      coldStarts.labels('load').observe(timings.loadMs / 1000);
    },
    readGaugesFrom(given) {
      gauges = given;
    },
    readPromisesFrom(read) {
      promises = read;
    },
    readFunctionInstancesFrom(count) {
      functionInstances = count;
    },
    readJobsFrom(count) {
      openJobs = count;
    },
    readPoolsFrom(count) {
      pools = count;
    },
    readLeftoversFrom(count) {
      leftovers = count;
    },
    readClusterFrom(read) {
      cluster = read;
    },
  };
}

/** A function among those of all tenants. */
export function functionKey(tenant: string, name: string): string {
  return `${tenant}/${name}`;
}

function outcomesOf(observers: ReadonlyMap<string, Observer>): (readonly [string, readonly number[]])[] {
  return [...observers].map(([outcome, { counts }]) => [outcome, counts]);
}

interface FunctionObservers {
  readonly tenant: string;
  readonly name: string;
  readonly queue: Observer;
  readonly calls: Map<string, Observer>;
}

/** A series that names a tenant; the label is the first, or the second behind the bound of a bucket. */
const OF_TENANT = /^\w+\{(?:le="[^"]*",)?tenant="([^"]+)"/;

/** Without the series that name another tenant. */
function ofTenant(text: string, tenant: string | null): string {
  if (tenant === null) return text;
  const isHidden = (line: string) => {
    const named = OF_TENANT.exec(line);
    return named !== null && named[1] !== tenant;
  };
  return text
    .split('\n')
    .filter(line => !isHidden(line))
    .join('\n');
}

/** Codes may come out of a sandbox: those that nobody knows are one. */
const OUTCOMES: ReadonlySet<string> = new Set([
  ...['ok', 'cancelled', 'internal', 'invalid_request', 'unauthenticated', 'permission_denied', 'not_found'],
  ...['already_exists', 'failed_precondition', 'resource_exhausted', 'unavailable', 'deadline_exceeded'],
  ...['execution_failed', '500', ...CALL_CODES.map(({ code }) => String(code))],
]);

function outcomeLabel(outcome: string): string {
  return OUTCOMES.has(outcome) ? outcome : 'other';
}

/** Anybody can send any method; those that no route has are one. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** On the path of every request: labels are looked up once, then remembered by route, method and status. */
function requestObserver(requests: FastHistogram, entry: string): EntryMetrics['observeRequest'] {
  const byRoute = new Map<string, Map<string, Map<number, Observer>>>();
  return (sentMethod, sentRoute, status, seconds) => {
    const method = METHODS.has(sentMethod) ? sentMethod : 'other';
    const byMethod = remembered(byRoute, sentRoute, () => new Map<string, Map<number, Observer>>());
    const byStatus = remembered(byMethod, method, () => new Map<number, Observer>());
    const observer = remembered(byStatus, status, () =>
      requests.labels(entry, method, sentRoute || 'unknown', status >= 100 && status <= 599 ? String(status) : 'other'),
    );
    observer.observe(seconds);
  };
}

function remembered<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

function histogram(name: MetricName, registry: Registry): FastHistogram {
  const definition: MetricDefinition = METRICS[name];
  const { help, labels, buckets = [] } = definition;
  return new FastHistogram({ name, help, labelNames: Object.keys(labels), buckets }, registry);
}

function common(name: MetricName, registry: Registry) {
  const definition: MetricDefinition = METRICS[name];
  return { name, help: definition.help, labelNames: Object.keys(definition.labels), registers: [registry] };
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

/** Prometheus' usual names for the process, without the timers that prom-client's own collection of them would start. */
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

/** Null where the system has no /proc. */
function openFileCount(): number | null {
  try {
    // One of them is the directory that is being read.
    return readdirSync('/proc/self/fd').length - 1;
  } catch {
    return null;
  }
}
