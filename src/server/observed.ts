import type { ServerResponse } from 'node:http';
import type { ClusterNode } from '../cluster/cluster-node.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../core/environment.ts';
import { ServiceError } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { LATEST } from '../core/urn.ts';
import type { Finding } from '../doctor/checks.ts';
import { EventLog } from '../events/event-log.ts';
import { OwnerEvents } from '../events/owner-events.ts';
import { EVENTS_PATH, PeerEvents, streamEvents } from '../events/peer-events.ts';
import type { InstanceChange } from '../instances/changes.ts';
import type { Ledger, Size } from '../instances/ledger.ts';
import type { JobChange } from '../jobs/job-changes.ts';
import type { Registry } from '../registry/registry.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import { functionKey } from '../telemetry/function-metrics.ts';
import { HISTORY_PATH, HistoryOfNodes, type Levels, MetricsHistory } from '../telemetry/history.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { MachineLoad } from './machine.ts';

/** Current events and past metrics, for dashboards and the API; for server.ts. */

/** Parts whose numbers the history stores. */
export interface Counted {
  readonly ledger: Ledger;
  readonly agents: { readonly liveInstances: number; readonly openCalls: number };
  readonly functions: { countInstances(): ReadonlyMap<string, number> };
  readonly jobs: { byStatus(): { readonly PENDING: number; readonly RUNNING: number } };
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
    const functionLevels = () =>
      new Map(
        this.#owners
          .counts()
          .map(({ tenant, name, instances, ready }) => [
            functionKey(tenant, name),
            { instances, instances_ready: ready },
          ]),
      );
    const sources = { ...counted, functionLevels, levels: () => ({ ...load.levels(), ...levelsOf(parts, machine) }) };
    return new MetricsHistory(sources, { maxFunctions: LIMITS.historySubjects, node: this.#nodeId });
  }
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
    const history = path === HISTORY_PATH ? this.history.answer(query) : null;
    if (history === null) return false;
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(history));
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
