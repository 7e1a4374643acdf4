import { Counter, Registry } from 'prom-client';
import { LIMITS } from '../core/limits.ts';
import { CallCounts, type CountedCalls, countedOf, isErrorOutcome } from './call-counts.ts';
import { FunctionMetrics, type FunctionTimings } from './function-metrics.ts';
import { addGauges, type MetricSources } from './gauges.ts';
import type { FastHistogram, Observer } from './metric-parts.ts';
import { common, histogram, outcomeLabel, outcomesOf, remembered } from './metric-parts.ts';

/** Reports of an HTTP entry (`EntryMetrics` of `http/entry.ts`). */
export interface EntryMetrics {
  /**
   * Records a request. `route` is the pattern of a route, never the path that was sent; `''` for an unknown
   * one.
   */
  observeRequest(method: string, route: string, status: number, seconds: number): void;
  /** Counts an uncaught error in the handling of a request. */
  uncaught(): void;
  /** Renders the metrics that `tenant` may see; null: all of them. */
  render(tenant: string | null): Promise<{ readonly contentType: string; readonly body: string }>;
}

/** Reports of starts and ends (`InstanceMetrics` of `instances/contract.ts`). */
export interface InstanceMetrics {
  created(driver: string, outcome: 'created' | 'failed', durationMs: number): void;
  exited(driver: string): void;
}

/** Reports of jobs (`JobMetrics` of `jobs/job-states.ts`). */
export interface JobMetrics {
  started(waitedMs: number): void;
  attempted(status: string, ranMs: number): void;
  ended(status: string): void;
}

/** Reports of requests that are forwarded to other replicas (`ForwardMetrics` of `cluster/forwarder.ts`). */
export interface ForwardMetrics {
  forwarded(result: string): void;
  hop(seconds: number): void;
}

export interface Metrics {
  entry(name: 'frontend' | 'meta_service'): EntryMetrics;
  readonly instances: InstanceMetrics;
  /** Counts a restart of an agent by its policy. */
  readonly policyRestarted: (outcome: 'restarted' | 'failed') => void;
  /** Counts an alarm that was not delivered as planned. */
  readonly alarmMissed: (outcome: 'failed' | 'skipped' | 'dropped') => void;
  readonly jobs: JobMetrics;
  /**
   * Records an agent's call. `outcome`: `ok`, the number of a user-code failure, or an error code of the
   * service.
   * `agentId` may belong to no agent.
   */
  readonly invoked: (outcome: string, seconds: number, agentId: string) => void;
  /** Removes the counts of a deleted agent. */
  agentGone(agentId: string): void;
  /**
   * Ends the series of a deleted function, and frees its label. Returns false when the function has no
   * series.
   */
  functionGone(tenant: string, name: string): boolean;
  /** Checks whether a function has its own series. */
  hasFunction(tenant: string, name: string): boolean;
  /** The counts that `MetricsHistory` samples. */
  readonly counted: {
    service(): CountedCalls;
    /** Returns the counts of functions by `functionKey`. */
    functions(): Iterable<readonly [string, CountedCalls]>;
    agents(): Iterable<readonly [string, CountedCalls]>;
  };
  /**
   * Records a function's call. `code`: `ok` or the failure's code. `timings` is null for a call without a
   * slot.
   */
  readonly functionInvoked: (
    tenant: string,
    name: string,
    code: string,
    seconds: number,
    timings: FunctionTimings | null,
  ) => void;
  /** Counts an uncaught error of the process, which continues. */
  uncaught(): void;
  /** Counts a completed fetch of the keys that verify tokens. */
  keysFetched(hasSucceeded: boolean): void;
  /** Adds sources for the gauges. A gauge without a source is 0. */
  readFrom(sources: MetricSources): void;
  readonly forwards: ForwardMetrics;
}

/** Creates the metrics of the service. No timer runs for them: gauges are read at the scrape. */
export function createMetrics(options: { readonly version: string }): Metrics {
  const registry = new Registry();
  const sources: MetricSources = {};
  addGauges(registry, options.version, sources);
  const requests = histogram('rookery_http_request_seconds', registry);
  const calls = histogram('rookery_invocation_seconds', registry);
  const creates = histogram('rookery_create_seconds', registry);
  const functions = new FunctionMetrics(registry);
  const exits = new Counter(common('rookery_instance_exits_total', registry));
  const policyRestarts = new Counter(common('rookery_policy_restarts_total', registry));
  const alarms = new Counter(common('rookery_alarms_total', registry));
  const forwards = new Counter(common('rookery_forwarded_total', registry));
  const hops = histogram('rookery_forward_seconds', registry).labels();
  const jobEnds = new Counter(common('rookery_job_ends_total', registry));
  const jobWaits = histogram('rookery_job_wait_seconds', registry);
  const jobRuns = histogram('rookery_job_run_seconds', registry);
  const uncaught = new Counter(common('rookery_uncaught_errors_total', registry));
  // Without a first sample of 0 an alert on the increase would miss the first error.
  for (const scope of ['request', 'process']) uncaught.labels(scope).inc(0);
  const keyFetches = new Counter(common('rookery_jwks_fetches_total', registry));
  const callObservers = new Map<string, Observer>();
  const agentCalls = new Map<string, CallCounts>();
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
    keysFetched: hasSucceeded => keyFetches.labels(hasSucceeded ? 'ok' : 'failed').inc(),
    instances: {
      created: (driver, outcome, durationMs) => creates.labels(driver, outcome).observe(durationMs / 1000),
      exited: driver => exits.labels(driver).inc(),
    },
    policyRestarted: outcome => policyRestarts.labels(outcome).inc(),
    alarmMissed: outcome => alarms.labels(outcome).inc(),
    jobs: {
      started: waitedMs => jobWaits.labels().observe(waitedMs / 1000),
      attempted: (status, ranMs) => jobRuns.labels(status).observe(ranMs / 1000),
      ended: status => jobEnds.labels(status).inc(),
    },
    forwards: {
      forwarded: result => forwards.labels(result).inc(),
      hop: seconds => hops.observe(seconds),
    },
    invoked(outcome, seconds, agentId) {
      const label = outcomeLabel(outcome);
      remembered(callObservers, label, () => calls.labels(label)).observe(seconds);
      const known = agentCalls.get(agentId);
      if (known !== undefined) known.observe(seconds, isErrorOutcome(outcome));
      // Clients invent ids. A successful call, or a live agent, proves that the agent exists.
      else if (agentCalls.size < LIMITS.historySubjects && (outcome === 'ok' || sources.isLiveAgent?.(agentId))) {
        const counts = new CallCounts();
        counts.observe(seconds, isErrorOutcome(outcome));
        agentCalls.set(agentId, counts);
      }
    },
    hasFunction: (tenant, name) => functions.has(tenant, name),
    functionGone: (tenant, name) => functions.deleted(tenant, name),
    functionInvoked: (...call) => functions.invoked(...call),
    agentGone: agentId => void agentCalls.delete(agentId),
    counted: {
      service: () => countedOf([...outcomesOf(callObservers), ...functions.outcomes()]),
      functions: () => functions.counted(),
      agents: () => agentCalls,
    },
    readFrom: given => void Object.assign(sources, given),
  };
}

/** Matches a series with a tenant label, which is first, or second after the bound of a bucket. */
const OF_TENANT = /^\w+\{(?:le="[^"]*",)?tenant="([^"]+)"/;

/** Removes the series of other tenants. */
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

/** Methods with their own label. Clients can send any method, so all others share one. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** Returns the observer on the path of every request. Looks up labels once per route, method and status. */
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
