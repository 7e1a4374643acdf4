import { readdirSync } from 'node:fs';
import { type EventLoopUtilization, performance } from 'node:perf_hooks';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { METRICS, type MetricDefinition, type MetricName } from './metric-table.ts';

/** What an HTTP entry reports. */
export interface HttpMetrics {
  /** `route` is one of a closed set (method and pattern), never a path as it was sent. */
  observe(route: string, status: number, seconds: number): void;
}

/** What the scheduler reports. */
export interface InstanceMetrics {
  /** `outcome`: `ok`, the number of a failure of user code, or an error code of ours. */
  invoked(outcome: string, seconds: number): void;
  created(driver: string, outcome: string, seconds: number): void;
  started(driver: string, stage: 'sandbox' | 'connect' | 'load', seconds: number): void;
  exited(driver: string, reason: 'exit' | 'signal' | 'out_of_memory'): void;
  adopted(outcome: 'ok' | 'dead' | 'orphan'): void;
}

/** What is counted only when somebody looks. */
export interface Gauges {
  instances(): Readonly<Record<string, number>>;
  waitingCalls(): number;
  runningCalls(): number;
}

export interface Metrics {
  http(entry: 'frontend' | 'meta'): HttpMetrics;
  readonly instances: InstanceMetrics;
  /** Where the gauges of instances come from; until then they are absent. */
  setGauges(gauges: Gauges): void;
  readonly contentType: string;
  /** The whole page for Prometheus. */
  text(): Promise<string>;
}

/** The metrics of one service. No timer runs for them: what can be read at the scrape is read there. */
export function createMetrics(options: { readonly version: string }): Metrics {
  const registry = new Registry();
  let gauges: Gauges | undefined;

  const gauge = (name: MetricName, read: (set: (value: number, labels?: Record<string, string>) => void) => void) =>
    new Gauge({
      ...common(name, registry),
      collect() {
        this.reset();
        read((value, labels) => (labels === undefined ? this.set(value) : this.set(labels, value)));
      },
    });
  const histogram = (name: MetricName) => new Histogram({ ...common(name, registry), buckets: bucketsOf(name) });
  const counter = (name: MetricName) => new Counter(common(name, registry));

  gauge('rookery_build_info', set => set(1, { version: options.version, node: process.version }));
  gauge('rookery_instances', set => {
    for (const [status, count] of Object.entries(gauges?.instances() ?? {})) set(count, { status });
  });
  gauge('rookery_waiting_calls', set => gauges && set(gauges.waitingCalls()));
  gauge('rookery_running_calls', set => gauges && set(gauges.runningCalls()));
  addProcessMetrics(registry, gauge);

  const requests = histogram('rookery_http_request_seconds');
  const invocations = bound1(histogram('rookery_invocation_seconds'));
  const creates = bound2(histogram('rookery_create_seconds'));
  const stages = bound2(histogram('rookery_start_stage_seconds'));
  const exits = counter('rookery_instance_exits_total');
  const adoptions = counter('rookery_adopted_total');

  return {
    http: entry => {
      const observers = new Map<string, Observer[]>();
      return {
        observe(route, status, seconds) {
          let byStatus = observers.get(route);
          if (byStatus === undefined) {
            byStatus = [];
            observers.set(route, byStatus);
          }
          let observer = byStatus[status];
          if (observer === undefined) {
            observer = requests.labels(entry, route, String(status));
            byStatus[status] = observer;
          }
          observer.observe(seconds);
        },
      };
    },
    instances: {
      invoked: invocations,
      created: creates,
      started: stages,
      exited: (driver, reason) => exits.labels(driver, reason).inc(),
      adopted: outcome => adoptions.labels(outcome).inc(),
    },
    setGauges(given) {
      gauges = given;
    },
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}

type Observer = ReturnType<Histogram<string>['labels']>;

/** Looking up the labels once per value of them is what makes an observation cheap. */
function bound1(histogram: Histogram<string>): (label: string, seconds: number) => void {
  const observers = new Map<string, Observer>();
  return (label, seconds) => {
    let observer = observers.get(label);
    if (observer === undefined) {
      observer = histogram.labels(label);
      observers.set(label, observer);
    }
    observer.observe(seconds);
  };
}

function bound2(histogram: Histogram<string>): (first: string, second: string, seconds: number) => void {
  return (first, second, seconds) => histogram.labels(first, second).observe(seconds);
}

function common(name: MetricName, registry: Registry) {
  const definition: MetricDefinition = METRICS[name];
  return { name, help: definition.help, labelNames: Object.keys(definition.labels), registers: [registry] };
}

function bucketsOf(name: MetricName): number[] {
  const definition: MetricDefinition = METRICS[name];
  return [...(definition.buckets ?? [])];
}

type AddGauge = (name: MetricName, read: (set: (value: number) => void) => void) => unknown;

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
