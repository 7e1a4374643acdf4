/**
 * The definition of a metric. `createMetrics` sets the source of a `counter` or `gauge` that is read at the
 * scrape.
 */
export interface MetricDefinition {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly buckets?: readonly number[];
}

/** Buckets from a warm call on a laptop to a handler that takes minutes. */
export const CALL_SECONDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600,
];
const START_SECONDS = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60];

/** Buckets from `echo` to a training that takes days. */
const JOB_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400];

const ENTRY = '`frontend` or `meta_service`';
const DRIVER = 'the sandbox driver: `process`, `docker`, …';

/**
 * Every metric of the service, once; `docs/reference/metrics.md` is generated from it.
 * A histogram includes a count, so timed events have no additional counter. The invoke path pays for one
 * observation per layer.
 */
export const METRICS = {
  rookery_build_info: {
    type: 'gauge',
    help: 'Always 1; the labels name the versions.',
    labels: { version: 'version of Rookery', node: 'version of Node' },
  },
  rookery_http_request_seconds: {
    type: 'histogram',
    help: 'Duration of HTTP requests, from the headers to the end of the answer.',
    labels: {
      entry: ENTRY,
      method: 'HTTP method, `other` for those that no route has',
      route: 'pattern of the route, `unknown` for those that do not exist',
      status: 'HTTP status',
    },
    buckets: CALL_SECONDS,
  },
  rookery_invocation_seconds: {
    type: 'histogram',
    help: 'Duration of agent calls, including waiting.',
    labels: {
      outcome:
        '`ok`, a code of user code (`4002`), the code of an error of the service (`deadline_exceeded`), or `other`',
    },
    buckets: CALL_SECONDS,
  },
  rookery_open_calls: {
    type: 'gauge',
    help: 'Agent calls that were accepted and are not answered yet, including waiting ones.',
    labels: {},
  },
  rookery_call_records_total: {
    type: 'counter',
    help: 'Calls that the history was to record. Without `history.days` there are none.',
    labels: {
      result:
        '`written`, `dropped` (the database was too slow, and newer calls took their place) or `failed` (it refused them)',
    },
  },
  rookery_live_instances: {
    type: 'gauge',
    help: 'Running agents.',
    labels: {},
  },
  rookery_promised: {
    type: 'gauge',
    help: 'Resources promised to instances, and the most that may be promised (owner `limit`): see the settings `overcommit.*`.',
    labels: {
      owner: 'agent, function, job, build, or `limit`',
      resource: 'cpu_millis, memory_mb or processes',
    },
  },
  rookery_function_invocation_seconds: {
    type: 'histogram',
    help: 'Duration of function calls, including waiting.',
    labels: {
      tenant: 'whose function it is; with authentication on a caller sees its own, unless `metrics.tenants` names it',
      function: 'name of the function, `other` (of no tenant) above the bound of names',
      code: '`ok`, or the code of the failure (`4002`, `150429`), `cancelled` when the caller left, `other` for an unknown code',
    },
    buckets: CALL_SECONDS,
  },
  rookery_function_queue_seconds: {
    type: 'histogram',
    help: 'Time that function calls waited for a slot.',
    labels: { tenant: 'as above', function: 'as above' },
    buckets: CALL_SECONDS,
  },
  rookery_function_cold_start_seconds: {
    type: 'histogram',
    help: 'Cold starts that a call waited for, by stage.',
    labels: { stage: '`start` until the sandbox runs and answers, `load` until its code is loaded' },
    buckets: START_SECONDS,
  },
  rookery_function_instances: {
    type: 'gauge',
    help: 'Instances of functions.',
    labels: { state: '`starting`, `ready`, `draining` (its last calls run) or `stopping`' },
  },
  rookery_create_seconds: {
    type: 'histogram',
    help: 'Duration of instance starts (creates and restarts), until the code was loaded.',
    labels: { driver: DRIVER, outcome: '`created` or `failed`' },
    buckets: START_SECONDS,
  },
  rookery_instance_exits_total: {
    type: 'counter',
    help: 'Instances that ended without a request.',
    labels: { driver: DRIVER },
  },
  rookery_policy_restarts_total: {
    type: 'counter',
    help: 'Restarts of agents by restart policy.',
    labels: { outcome: '`restarted` or `failed` (the start failed; it counts towards the maximum in a row)' },
  },
  rookery_alarms_total: {
    type: 'counter',
    help: 'Alarms of durable agents.',
    labels: {
      outcome:
        '`failed` (one of its attempts), `skipped` (its next regular time stands for it) or `dropped` (later than `max_late_seconds`)',
    },
  },
  rookery_uncaught_errors_total: {
    type: 'counter',
    help: 'Unexpected errors; each failed one request or none. The log contains them.',
    labels: { scope: '`request` (only that request failed) or `process`' },
  },
  rookery_jwks_fetches_total: {
    type: 'counter',
    help: 'Fetches of the keys that verify tokens (`jwt.jwksUrl`). While they fail, the last keys are used for a day.',
    labels: { outcome: '`ok` or `failed`' },
  },
  rookery_forwarded_total: {
    type: 'counter',
    help: 'Requests that this replica forwarded to the replica that owns their instance, function or job.',
    labels: {
      result:
        '`answered`, `not_here` (it had moved), `unreachable` (nothing was sent), `broken` (the connection to the other replica ended early) or `caller_left`',
    },
  },
  rookery_forward_seconds: {
    type: 'histogram',
    help: 'Time of forwarded requests until the head of the answer, including the call.',
    labels: {},
    buckets: CALL_SECONDS,
  },
  rookery_peer_connections: {
    type: 'gauge',
    help: 'Connections of this replica to others, including idle ones.',
    labels: {},
  },
  rookery_pool_pods: {
    type: 'gauge',
    help: 'Pods of pools, as seen by this replica.',
    labels: { pool: 'id of the pool', state: '`free`, `claimed` (an instance has it) or `starting`' },
  },
  rookery_pool_pending_pods: {
    type: 'gauge',
    help: 'Pods of pools that have been pending for longer than the `pod_pending_duration_threshold` of their pool.',
    labels: { pool: 'id of the pool' },
  },
  rookery_jobs: {
    type: 'gauge',
    help: 'Unfinished jobs of this node.',
    labels: { status: '`PENDING` (waiting, or preparing files and packages) or `RUNNING`' },
  },
  rookery_leftovers: {
    type: 'gauge',
    help: 'Files and directories of sandboxes that could not be removed yet. The log has the reason; the service retries.',
    labels: {},
  },
  rookery_job_ends_total: {
    type: 'counter',
    help: 'Finished jobs, whether or not they ran. A job that fails with its replica is counted by the replica that declares that one lost.',
    labels: { status: '`SUCCEEDED`, `FAILED` or `STOPPED`' },
  },
  rookery_job_wait_seconds: {
    type: 'histogram',
    help: 'Time from the submit of a job to its first attempt, including its environment.',
    labels: {},
    buckets: JOB_SECONDS,
  },
  rookery_job_run_seconds: {
    type: 'histogram',
    help: 'Duration of job attempts; a retried job has several.',
    labels: { status: 'how the attempt ended: `SUCCEEDED`, `FAILED` or `STOPPED`' },
    buckets: JOB_SECONDS,
  },
  rookery_cluster_nodes: {
    type: 'gauge',
    help: 'Live replicas, as seen by this one. Like all `rookery_cluster_*` only with PostgreSQL.',
    labels: {},
  },
  rookery_cluster_leases: {
    type: 'gauge',
    help: 'Leases that this replica holds.',
    labels: { kind: '`shard` (of functions, 64 in all), `jobs` or `sweeper`' },
  },
  rookery_cluster_lease_changes_total: {
    type: 'counter',
    help: 'Leases that this replica acquired, released or lost.',
    labels: { change: '`acquired`, `released` or `lost`' },
  },
  rookery_cluster_heartbeat_age_seconds: {
    type: 'gauge',
    help: 'Age of the last heartbeat of this replica that reached the database. Above 7 the replica has lost its place.',
    labels: {},
  },
  rookery_cluster_feed_behind_seconds: {
    type: 'gauge',
    help: 'Delay of this replica behind changes of others, beyond the second between two polls.',
    labels: {},
  },
  process_cpu_seconds_total: {
    type: 'counter',
    help: 'Processor time of the service itself.',
    labels: {},
  },
  process_resident_memory_bytes: { type: 'gauge', help: 'Memory of the service itself.', labels: {} },
  process_open_fds: { type: 'gauge', help: 'Open file descriptors of the service itself.', labels: {} },
  process_start_time_seconds: { type: 'gauge', help: 'Start of the service in seconds since 1970.', labels: {} },
  nodejs_heap_used_bytes: { type: 'gauge', help: 'Heap in use by JavaScript.', labels: {} },
  nodejs_external_memory_bytes: { type: 'gauge', help: 'Memory of buffers outside the heap.', labels: {} },
  nodejs_eventloop_utilization: {
    type: 'gauge',
    help: 'Busy share of the event loop since the last scrape, 0 to 1.',
    labels: {},
  },
} as const satisfies Readonly<Record<string, MetricDefinition>>;

export type MetricName = keyof typeof METRICS;

/**
 * Conditions of the alerts in `deploy/alerts.yaml` by metric. A sixth alert uses `up` of Prometheus itself.
 */
const ALERTS: Readonly<Record<string, string>> = {
  rookery_uncaught_errors_total: 'if it grows.',
  rookery_create_seconds: 'if more than a tenth of the starts fail.',
  rookery_promised: 'if more than 90 % of a resource is promised.',
  nodejs_eventloop_utilization: 'above 0.9.',
  rookery_cluster_heartbeat_age_seconds: 'above 7.',
};

/** Returns the content of `docs/reference/metrics.md`. */
export function metricsPage(): string {
  const metrics = Object.entries(METRICS as Readonly<Record<string, MetricDefinition>>);
  const sections = metrics.map(([name, metric]) => {
    const labels = Object.entries(metric.labels).map(([label, doc]) => `- \`${label}\`: ${doc}`);
    const [first] = metrics.find(([, { buckets }]) => String(buckets) === String(metric.buckets)) ?? [name];
    const bounds = first === name ? `in seconds: ${metric.buckets?.join(', ')}` : `as for \`${first}\``;
    const buckets = metric.buckets === undefined ? [] : ['', `Buckets ${bounds}.`];
    const lines = [
      `### \`${name}\` (${metric.type})`,
      '',
      ...(ALERTS[name] === undefined ? [] : [`**Alert** ${ALERTS[name]}`, '']),
      metric.help,
      ...(labels.length > 0 ? ['', ...labels] : []),
      ...buckets,
    ];
    return lines.join('\n');
  });
  return `# Metrics

<!-- Generated by \`npm run generate\` from src/telemetry/metric-table.ts. -->

\`GET /metrics\` on either entry answers in the Prometheus text format, with the same metrics on both entries of one process.
A histogram \`x\` has \`x_bucket\`, \`x_sum\` and \`x_count\`.
Five metrics are marked **Alert**: \`deploy/alerts.yaml\` has their rules, and one for a service that does not answer.

${sections.join('\n\n')}
`;
}
