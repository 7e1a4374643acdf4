import type { ServerResponse } from 'node:http';
import type { ClusterNode } from '../cluster/cluster-node.ts';
import type { Config } from '../config/config.ts';
import type { FailedAlarm } from '../core/alarm.ts';
import type { Environment } from '../core/environment.ts';
import { ServiceError } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { LATEST, parseUrn } from '../core/urn.ts';
import type { Finding } from '../doctor/checks.ts';
import { EventLog } from '../events/event-log.ts';
import { OwnerEvents } from '../events/owner-events.ts';
import { EVENTS_PATH, PeerEvents, streamEvents } from '../events/peer-events.ts';
import type { InstanceChange } from '../instances/changes.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger, Size } from '../instances/ledger.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import type { JobChange } from '../jobs/job-changes.ts';
import type { Registry } from '../registry/registry.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import { functionKey } from '../telemetry/function-metrics.ts';
import { HISTORY_PATH, HistoryOfNodes, type Levels, MetricsHistory } from '../telemetry/history.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { USAGE_PATH, UsageOfNodes } from '../telemetry/usage.ts';
import { MachineLoad } from './machine.ts';
import type { SandboxUsage, UsageSampler } from './usage-sampler.ts';

/** Current events and past metrics, for dashboards and the API; for server.ts. */

/** Parts whose numbers the history stores. */
export interface Counted {
  readonly ledger: Ledger;
  readonly agents: { readonly liveInstances: number; readonly openCalls: number };
  readonly functions: { countInstances(): ReadonlyMap<string, number> };
  readonly jobs: { byStatus(): { readonly PENDING: number; readonly RUNNING: number } };
  readonly usage: Pick<UsageSampler<LiveInstance>, 'all'>;
  readonly instances: Pick<Instances, 'live'>;
}

/** Returns the findings of `rookery doctor` for the drivers of the running service. */
export async function findingsOf(
  config: Config,
  environment: Environment,
  drivers: Drivers,
): Promise<readonly Finding[]> {
  const { findAll } = await import('../doctor/findings.ts');
  return findAll(config, environment, drivers);
}

export class Observed {
  readonly log: EventLog;
  readonly #owners: OwnerEvents;
  readonly #metrics: Metrics;
  readonly #nodeId: string;

  constructor(metrics: Metrics, nodeId: string) {
    this.#metrics = metrics;
    this.#nodeId = nodeId;
    this.log = new EventLog({ node: nodeId });
    this.#owners = new OwnerEvents(this.log);
  }

  readonly job = (change: JobChange): void => this.#owners.job(change);

  readonly alarmFailed = (failed: FailedAlarm): void => this.#owners.alarmFailed(failed);

  readonly instance = (change: InstanceChange): void => {
    this.#owners.instance(change);
    if (change.kind === 'ended') this.#metrics.agentGone(change.id);
  };

  /** Ends the metric series of functions that are deleted, by this or another replica. */
  watchFunctions(registry: Registry): void {
    registry.onChange(
      ({ kind, tenant, name, version }) => {
        if (kind === 'deleted' && version === null) this.#metrics.functionGone(tenant, name);
        else if (kind === 'elsewhere' && this.#metrics.hasFunction(tenant, name)) {
          registry.functions.get(tenant, name, LATEST).catch((error: unknown) => {
            if (error instanceof ServiceError && error.code === 'not_found') this.#metrics.functionGone(tenant, name);
          });
        }
      },
      () => undefined,
    );
  }

  history(parts: Counted, machine: Size): MetricsHistory {
    const load = new MachineLoad();
    const { counted } = this.#metrics;
    const functionLevels = () => {
      const ofFunctions = usageByFunction(parts.usage);
      return new Map(
        this.#owners.counts().map(({ tenant, name, instances, ready }) => {
          const key = functionKey(tenant, name);
          return [key, { instances, instances_ready: ready, ...ofFunctions.get(key) }];
        }),
      );
    };
    const sources = {
      ...counted,
      functionLevels,
      agentLevels: () => usageByAgent(parts.usage),
      tenantOfAgent: (id: string) => parts.instances.live('agent', id)?.tenant,
      levels: () => ({ ...load.levels(), ...levelsOf(parts, machine) }),
    };
    return new MetricsHistory(sources, { maxFunctions: LIMITS.historySubjects, node: this.#nodeId });
  }
}

function usageByAgent(usage: Counted['usage']): ReadonlyMap<string, Levels> {
  const found = new Map<string, Levels>();
  for (const [{ id, owner }, reading] of usage.all()) if (owner.kind === 'agent') found.set(id, usageLevels(reading));
  return found;
}

/** Returns the sums of the instances of each function, over all versions. */
function usageByFunction(usage: Counted['usage']): ReadonlyMap<string, Levels> {
  const found = new Map<string, Levels>();
  for (const [{ owner }, reading] of usage.all()) {
    const urn = owner.kind === 'function' ? parseUrn(owner.key) : null;
    if (urn === null) continue;
    const key = functionKey(urn.tenant, urn.name);
    const sums = { ...found.get(key) };
    for (const [name, value] of Object.entries(usageLevels(reading))) sums[name] = (sums[name] ?? 0) + value;
    found.set(key, sums);
  }
  return found;
}

function usageLevels({ cpuMillis, memoryMb }: SandboxUsage): Levels {
  return { ...(cpuMillis === null ? {} : { cpu_millis: cpuMillis }), memory_mb: memoryMb };
}

function levelsOf({ ledger, agents, functions, jobs }: Counted, machine: Size): Levels {
  const { by, limit } = ledger.reservations;
  const promised = (resource: 'cpuMillis' | 'memoryMb') =>
    Object.values(by).reduce((sum, size) => sum + size[resource], 0);
  const { PENDING, RUNNING } = jobs.byStatus();
  const states = functions.countInstances();
  return {
    agents: agents.liveInstances,
    open_calls: agents.openCalls,
    function_instances_starting: states.get('starting') ?? 0,
    function_instances_ready: states.get('ready') ?? 0,
    function_instances_stopping: (states.get('draining') ?? 0) + (states.get('stopping') ?? 0),
    jobs_waiting: PENDING,
    jobs_running: RUNNING,
    promised_cpu_millis: promised('cpuMillis'),
    promised_memory_mb: promised('memoryMb'),
    limit_cpu_millis: limit.cpuMillis,
    limit_memory_mb: limit.memoryMb,
    machine_cpu_millis: machine.cpuMillis,
    machine_memory_mb: machine.memoryMb,
  };
}

export interface ReplicasObservedOptions {
  readonly nodeId: string;
  readonly log: EventLog;
  readonly history: MetricsHistory;
  /** Cluster of this replica. null: there are no other replicas. */
  readonly cluster: ClusterNode | null;
  readonly logger: Logger;
}

/** Events and metrics that replicas exchange, so that each can show those of all; for server.ts. */
export class ReplicasObserved {
  readonly history: HistoryOfNodes;
  readonly usage: UsageOfNodes;
  readonly #log: EventLog;
  readonly #events: PeerEvents | null;

  constructor({ nodeId, log, history, cluster, logger }: ReplicasObservedOptions) {
    const living = () => cluster?.others() ?? [];
    this.#log = log;
    this.#events =
      cluster &&
      new PeerEvents(log, { living, open: (address, path) => cluster.open(address, path) }, (text, fields) =>
        logger.warn(fields, text),
      );
    const read = async (address: string, path: string) => await cluster?.read(address, path);
    this.history = new HistoryOfNodes({ nodeId, history, others: { living, read } });
    this.usage = new UsageOfNodes({ nodeId, history, others: { living, read } });
  }

  /** Answers a request of another replica. Returns false if the path is unknown. */
  readonly answer = (url: string, response: ServerResponse): boolean => {
    const [path, text] = url.split('?', 2);
    const query = new URLSearchParams(text);
    if (path === EVENTS_PATH) {
      response.writeHead(200, { 'Content-Type': 'application/jsonl' });
      streamEvents(this.#log, query.get('after'), response);
      return true;
    }
    const asked = path === HISTORY_PATH ? this.history : path === USAGE_PATH ? this.usage : null;
    const answer = asked?.answer(query) ?? null;
    if (answer === null) return false;
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer));
    return true;
  };

  /** Resolves when this replica has the events of the others, or after a short wait. */
  async start(): Promise<void> {
    await this.#events?.start();
  }

  close(): void {
    this.#events?.close();
  }
}
