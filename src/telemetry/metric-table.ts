/** One metric. `counter` and `gauge` may be read at the scrape (`createMetrics` says from where). */
export interface MetricDefinition {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly buckets?: readonly number[];
}

/** From a warm call on a laptop to a handler that takes minutes. */
export const CALL_SECONDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600,
];
const START_SECONDS = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60];

/** From `echo` to a training that takes days. */
const JOB_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400];

const ENTRY = '`frontend` or `meta_service`';
const DRIVER = 'the sandbox driver: `process`, `docker`, …';

/**
 * Every metric of the service, once; `docs/metrics.md` is generated from it. A histogram has its own count, so nothing
 * that is timed has a counter beside it: the invoke path pays for one observation per layer.
 */
export const METRICS = {
  rookery_build_info: {
    type: 'gauge',
    help: 'Always 1; the labels tell what runs.',
    labels: { version: 'version of Rookery', node: 'version of Node' },
  },
  rookery_http_request_seconds: {
    type: 'histogram',
    help: 'HTTP requests and how long each took, from its headers to the end of its answer.',
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
    help: 'Calls of agents and how long each took, waiting included.',
    labels: {
      outcome: '`ok`, a code of user code (`4002`), the code of an error of ours (`deadline_exceeded`), or `other`',
    },
    buckets: CALL_SECONDS,
  },
  rookery_open_calls: {
    type: 'gauge',
    help: 'Calls of agents that were taken and are not answered yet, those that wait for their turn included.',
    labels: {},
  },
  rookery_live_instances: {
    type: 'gauge',
    help: 'Agents that run and can be called.',
    labels: {},
  },
  rookery_promised: {
    type: 'gauge',
    help: 'What the machine has promised to instances that may run, beside what it may promise (owner `limit`): see the settings `overcommit.*`.',
    labels: {
      owner: 'agent, function, job, build, or `limit`',
      resource: 'cpu_millis, memory_mb or processes',
    },
  },
  rookery_function_invocation_seconds: {
    type: 'histogram',
    help: 'Calls of functions as services and how long each took, waiting included.',
    labels: {
      tenant: 'whose function it is; with authentication on a caller sees its own, unless `metrics.tenants` names it',
      function: 'name of the function, `other` (of no tenant) above the bound of names',
      code: '`ok`, or the code of the failure (`4002`, `150429`), `cancelled` when the caller left, `other` for a code that nobody knows',
    },
    buckets: CALL_SECONDS,
  },
  rookery_function_queue_seconds: {
    type: 'histogram',
    help: 'How long calls of functions waited for a slot on an instance.',
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
    help: 'Instances of function services now.',
    labels: { state: '`starting`, `ready`, `draining` (its last calls run) or `stopping`' },
  },
  rookery_create_seconds: {
    type: 'histogram',
    help: 'Starts of instances (creates and restarts) and how long each took, until its code was loaded.',
    labels: { driver: DRIVER, outcome: '`created` or `failed`' },
    buckets: START_SECONDS,
  },
  rookery_instance_exits_total: {
    type: 'counter',
    help: 'Instances that ended by themselves.',
    labels: { driver: DRIVER },
  },
  rookery_policy_restarts_total: {
    type: 'counter',
    help: 'Restarts of agents by their restart policies.',
    labels: { outcome: '`restarted` or `failed` (the start failed; it counts as one of the row)' },
  },
  rookery_uncaught_errors_total: {
    type: 'counter',
    help: 'Errors that nobody expected: each failed one request, or none. The log has them.',
    labels: { scope: '`request` (it failed, and nothing else) or `process`' },
  },
  rookery_forwarded_total: {
    type: 'counter',
    help: 'Requests that this replica passed to another one, where what they are about lives.',
    labels: {
      result:
        '`answered`, `not_here` (it had moved), `unreachable` (nothing was sent), `broken` (the other replica broke off) or `caller_left`',
    },
  },
  rookery_forward_seconds: {
    type: 'histogram',
    help: 'How long forwarded requests took until the head of their answer came, the call itself included.',
    labels: {},
    buckets: CALL_SECONDS,
  },
  rookery_peer_connections: {
    type: 'gauge',
    help: 'Connections of this replica to others, those that wait for a request included.',
    labels: {},
  },
  rookery_pool_pods: {
    type: 'gauge',
    help: 'Pods of pools of a Kubernetes cluster, as this replica sees them.',
    labels: { pool: 'id of the pool', state: '`free`, `claimed` (an instance has it) or `starting`' },
  },
  rookery_pool_pending_pods: {
    type: 'gauge',
    help: 'Pods of pools that have been pending for longer than the `pod_pending_duration_threshold` of their pool.',
    labels: { pool: 'id of the pool' },
  },
  rookery_jobs: {
    type: 'gauge',
    help: 'Jobs of this node that are not over.',
    labels: { status: '`PENDING` (it waits, or its files and packages are being made ready) or `RUNNING`' },
  },
  rookery_leftovers: {
    type: 'gauge',
    help: 'Files and directories of sandboxes that could not be removed yet; the log says why. It is tried again.',
    labels: {},
  },
  rookery_job_ends_total: {
    type: 'counter',
    help: 'Jobs that are over, each once, whether or not it ever ran; one that fails with its replica is counted by the replica that gives that one up.',
    labels: { status: '`SUCCEEDED`, `FAILED` or `STOPPED`' },
  },
  rookery_job_wait_seconds: {
    type: 'histogram',
    help: 'How long jobs waited, from the submit until their first attempt began; the making of their environment included.',
    labels: {},
    buckets: JOB_SECONDS,
  },
  rookery_job_run_seconds: {
    type: 'histogram',
    help: 'Attempts of jobs and how long each ran; a job that is tried again has more than one.',
    labels: { status: 'how the attempt ended: `SUCCEEDED`, `FAILED` or `STOPPED`' },
    buckets: JOB_SECONDS,
  },
  rookery_cluster_nodes: {
    type: 'gauge',
    help: 'Replicas that are alive, as this one knows; only over PostgreSQL, as all of `rookery_cluster_*`.',
    labels: {},
  },
  rookery_cluster_leases: {
    type: 'gauge',
    help: 'Leases that this replica holds.',
    labels: { kind: '`shard` (of functions, 64 in all), `jobs` or `sweeper`' },
  },
  rookery_cluster_lease_changes_total: {
    type: 'counter',
    help: 'Leases that this replica got, gave away, or lost with its place in the cluster.',
    labels: { change: '`acquired`, `released` or `lost`' },
  },
  rookery_cluster_heartbeat_age_seconds: {
    type: 'gauge',
    help: 'How long ago the last heartbeat of this replica that reached the database was sent; above 7 it has lost its place.',
    labels: {},
  },
  rookery_cluster_feed_behind_seconds: {
    type: 'gauge',
    help: 'How far this replica may be behind the changes of others, beyond the second between two polls.',
    labels: {},
  },
  process_cpu_seconds_total: {
    type: 'counter',
    help: 'Processor time of the service itself.',
    labels: {},
  },
  process_resident_memory_bytes: { type: 'gauge', help: 'Memory of the service itself.', labels: {} },
  process_open_fds: { type: 'gauge', help: 'Open file descriptors of the service itself.', labels: {} },
  process_start_time_seconds: { type: 'gauge', help: 'When the service started, seconds since 1970.', labels: {} },
  nodejs_heap_used_bytes: { type: 'gauge', help: 'Heap in use by JavaScript.', labels: {} },
  nodejs_external_memory_bytes: { type: 'gauge', help: 'Memory of buffers outside the heap.', labels: {} },
  nodejs_eventloop_utilization: {
    type: 'gauge',
    help: 'Share of the time since the last scrape that the event loop was busy, 0 to 1.',
    labels: {},
  },
} as const satisfies Readonly<Record<string, MetricDefinition>>;

export type MetricName = keyof typeof METRICS;
