import { randomUUID } from 'node:crypto';
import type {
  AgentAlarmStore,
  AgentChange,
  AgentCopyStore,
  AgentInstances,
  CreateInstance,
  ExpiryChange,
  InstanceQuery,
  ResumedInstance,
  WokenInstance,
} from '../../src/agents/contract.ts';
import {
  alreadyPaused,
  instanceFailed,
  isPaused,
  keyUsed,
  nameTaken,
  noAlarm,
  noPreviousRun,
  notChangeable,
  notDurable,
  notRunning,
} from '../../src/agents/refusals.ts';
import type { Alarm } from '../../src/core/alarm.ts';
import { failedPrecondition, type ServiceError } from '../../src/core/error.ts';
import { type Instance, type InstanceSpec, NO_SANDBOX } from '../../src/core/instance.ts';
import { instanceNotFound } from '../../src/instances/refusals.ts';
import type { ServerTiming } from '../../src/lib/server-timing.ts';
import { type Call, type CallOutcome, timedOut } from '../../src/runtime/call.ts';
import type { SandboxAccess } from '../../src/sandbox/access.ts';
import type { ExecRequest, ExecResult, LogRequest, SandboxStats } from '../../src/sandbox/driver.ts';

interface Creating {
  readonly planned: Instance;
  readonly created: Promise<Instance>;
  readonly requestHash: string | undefined;
}

/**
 * `AgentInstances` in memory, so that tests of routes need no sandboxes.
 * `test/suites/agent-instances.ts` defines the contract. Each test sets the behaviour of user code.
 */
export class MemoryInstances implements AgentInstances {
  readonly calls: { id: string; call: Call }[] = [];
  readonly deletes: { id: string; graceMs: number | null }[] = [];
  readonly queries: InstanceQuery[] = [];
  /** Access to the sandbox of every instance; null: `access` fails. */
  inside: SandboxAccess | null = null;
  readonly execs: ExecRequest[] = [];
  readonly logRequests: LogRequest[] = [];
  onCreate: (request: CreateInstance) => Partial<Instance> | Promise<Partial<Instance>> = () => ({});
  onInvoke: (call: Call) => CallOutcome | Promise<CallOutcome> = call => ({ ok: true, data: call.body, runMicros: 1 });
  onExec: (request: ExecRequest, signal: AbortSignal) => ExecResult | Promise<ExecResult> = () => ({
    returncode: 0,
    stdout: '',
    stderr: '',
    truncated: false,
  });
  onLogs: (request: LogRequest, signal: AbortSignal) => AsyncIterable<Buffer> = async function* () {};
  readonly #instances = new Map<string, Instance>();
  /** Creates in progress by name. `#keys` has all creates by idempotency key, finished ones too. */
  readonly #creating = new Map<string, Creating>();
  readonly #keys = new Map<string, Creating>();

  async create(request: CreateInstance): Promise<Instance> {
    const { spec, idempotency } = request;
    const key = JSON.stringify([spec.tenant, idempotency?.key]);
    const known = idempotency && this.#keys.get(key);
    if (known) {
      if (known.requestHash !== idempotency.requestHash) throw keyUsed(idempotency.key);
      return this.#find(spec.tenant, (await known.created).id);
    }
    const name = JSON.stringify([spec.tenant, spec.namespace, spec.name]);
    const holder = this.#holderOf(spec) ?? this.#creating.get(name)?.planned;
    if (holder) throw nameTaken(holder);
    const planned = newInstance(spec);
    const created = this.#create(request, planned);
    const creating = { planned, created, requestHash: idempotency?.requestHash };
    this.#creating.set(name, creating);
    if (idempotency) this.#keys.set(key, creating);
    try {
      return await created;
    } catch (error) {
      this.#keys.delete(key);
      throw error;
    } finally {
      this.#creating.delete(name);
    }
  }

  async #create(request: CreateInstance, planned: Instance): Promise<Instance> {
    return this.put({ ...planned, ...(await this.onCreate(request)) });
  }

  #holderOf(spec: InstanceSpec): Instance | undefined {
    return [...this.#instances.values()].find(
      ({ spec: { tenant, namespace, name } }) =>
        tenant === spec.tenant && namespace === spec.namespace && name === spec.name,
    );
  }

  async invoke(tenant: string, id: string, call: Call): Promise<CallOutcome> {
    const { status, statusReason } = this.#find(tenant, id);
    if (status === 'PAUSED') throw isPaused(id);
    if (status === 'FAILED') throw instanceFailed(id, statusReason);
    if (status !== 'RUNNING') throw instanceNotFound(id);
    if ((call.waitedMs ?? 0) >= call.timeoutMs) throw timedOut(call);
    this.calls.push({ id, call });
    return await this.onInvoke(call);
  }

  /** The result of `refusal`; set by tests. */
  full: ServiceError | undefined;
  /** Number of calls of `refusal`. */
  refusalsAsked = 0;

  refusal(): ServiceError | undefined {
    this.refusalsAsked += 1;
    return this.full;
  }

  async find(id: string): Promise<Instance | null> {
    return this.#instances.get(id) ?? null;
  }

  async sandboxIds(): Promise<readonly string[]> {
    return this.liveSandboxes().map(({ id }) => id);
  }

  liveSandboxes(): readonly { readonly tenant: string; readonly id: string }[] {
    return [...this.#instances.values()]
      .filter(({ spec }) => spec.template !== undefined)
      .map(({ id, spec }) => ({ id, tenant: spec.tenant }));
  }

  async get(tenant: string, id: string): Promise<Instance> {
    return this.#find(tenant, id);
  }

  async list(query: InstanceQuery) {
    this.queries.push(query);
    const instances = [...this.#instances.values()]
      .filter(({ spec, status }) => spec.tenant === query.tenant && [query.status ?? status].flat().includes(status))
      .filter(({ spec }) => (query.namespace ?? spec.namespace) === spec.namespace)
      .filter(({ spec }) => (query.name ?? spec.name) === spec.name)
      .filter(({ labels }) => Object.entries(query.labels ?? {}).every(([key, value]) => labels[key] === value))
      .filter(({ spec: { template } }) => (query.template === null ? template !== undefined : true))
      .filter(({ spec: { template } }) => [query.template ?? template].flat().includes(template))
      .filter(({ startedAtMs }) => startedAtMs >= (query.startedAfterMs ?? 0))
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    if (query.order !== undefined && query.order !== 'id') instances.sort((a, b) => a.startedAtMs - b.startedAtMs);
    if (query.order === 'newest') instances.reverse();
    const first = query.cursor === null ? 0 : instances.findIndex(({ id }) => id === query.cursor) + 1;
    const page = instances.slice(first, first + query.limit);
    const isLast = first + page.length >= instances.length;
    return { instances: page, nextCursor: isLast ? null : (page.at(-1)?.id ?? null) };
  }

  async delete(tenant: string, id: string, graceMs: number | null, stages?: ServerTiming): Promise<void> {
    this.#find(tenant, id);
    stages?.end('row');
    this.deletes.push({ id, graceMs });
    this.#instances.delete(id);
    for (const [key, { planned }] of this.#keys) if (planned.id === id) this.#keys.delete(key);
  }

  async restart(tenant: string, id: string): Promise<Instance> {
    const instance = { ...this.#find(tenant, id), status: 'RUNNING' as const, statusReason: '' };
    return this.put({ ...instance, restarts: instance.restarts + 1 });
  }

  async setExpiry(tenant: string, id: string, { ttlMs, onlyLater = false }: ExpiryChange): Promise<Instance> {
    const instance = this.#find(tenant, id);
    const expiresAtMs = ttlMs === 0 ? 0 : Date.now() + ttlMs;
    const isKept = onlyLater && expiresAtMs !== 0 && (instance.expiresAtMs === 0 || instance.expiresAtMs > expiresAtMs);
    return isKept ? instance : this.put({ ...instance, expiresAtMs });
  }

  async pause(tenant: string, id: string): Promise<Instance> {
    const instance = this.#find(tenant, id);
    if (instance.status === 'PAUSED') throw alreadyPaused(id);
    this.#running(tenant, id);
    return this.put({ ...instance, status: 'PAUSED', pausedAtMs: Date.now() });
  }

  async resume(tenant: string, id: string, change?: ExpiryChange): Promise<ResumedInstance> {
    const found = this.#find(tenant, id);
    const resumed = found.status === 'PAUSED';
    if (!resumed) this.#running(tenant, id);
    const instance = this.put({ ...found, status: 'RUNNING', pausedAtMs: 0 });
    return { instance: change === undefined ? instance : await this.setExpiry(tenant, id, change), resumed };
  }

  async sleep(tenant: string, id: string): Promise<Instance> {
    const found = this.#find(tenant, id);
    if (found.spec.durable === undefined) throw notDurable(id);
    if (found.status === 'SLEEPING') return found;
    this.#running(tenant, id);
    return this.put({ ...found, status: 'SLEEPING', sleptAtMs: Date.now() });
  }

  readonly #alarms = new Map<string, Map<string, Alarm>>();
  readonly copies: AgentCopyStore = {
    read: async (tenant, id) => {
      const { spec } = this.#find(tenant, id);
      if (spec.durable === undefined) throw notDurable(id);
      return { spec, state: null, alarms: await this.alarms.list(tenant, id) };
    },
    create: ({ spec }) => this.create({ spec }),
  };

  readonly alarms: AgentAlarmStore = {
    list: async (tenant, id) => [...this.#alarmsOf(tenant, id).values()],
    set: async (tenant, id, alarm) => {
      if (this.#find(tenant, id).spec.durable === undefined) throw notDurable(id);
      this.#alarmsOf(tenant, id).set(alarm.name, alarm);
    },
    cancel: async (tenant, id, name) => {
      if (!this.#alarmsOf(tenant, id).delete(name)) throw noAlarm(id, name);
    },
  };

  #alarmsOf(tenant: string, id: string): Map<string, Alarm> {
    this.#find(tenant, id);
    const alarms = this.#alarms.get(id) ?? new Map<string, Alarm>();
    this.#alarms.set(id, alarms);
    return alarms;
  }

  async update(tenant: string, id: string, { change }: AgentChange): Promise<Instance> {
    const found = this.#find(tenant, id);
    if (found.spec.durable === undefined) throw notChangeable(id);
    return this.put({ ...found, spec: { ...found.spec, next: await change(found.spec.next ?? found.spec) } });
  }

  async wake(tenant: string, id: string): Promise<WokenInstance> {
    const { sleptAtMs: _sleptAtMs, ...found } = this.#find(tenant, id);
    if (found.status !== 'SLEEPING') this.#running(tenant, id);
    return { instance: this.put({ ...found, status: 'RUNNING' }), woken: found.status === 'SLEEPING' };
  }

  async exec(tenant: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    this.#running(tenant, id);
    this.execs.push(request);
    return await this.onExec(request, signal);
  }

  async stats(tenant: string, id: string): Promise<SandboxStats> {
    this.#running(tenant, id);
    return { memoryBytes: 1_000_000, cpuMicros: 1000, processes: 1 };
  }

  async access(tenant: string, id: string): Promise<SandboxAccess> {
    this.#running(tenant, id);
    if (this.inside === null) throw failedPrecondition('this test has no sandboxes');
    return this.inside;
  }

  async logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    this.#find(tenant, id);
    this.logRequests.push(request);
    return this.onLogs(request, signal);
  }

  /** Adds or replaces an instance without a create, and returns the instance. */
  put(instance: Instance): Instance {
    this.#instances.set(instance.id, instance);
    return instance;
  }

  async previousLog(_tenant: string, id: string, run: number): Promise<string> {
    throw noPreviousRun(id, run);
  }

  #find(tenant: string, id: string): Instance {
    const instance = this.#instances.get(id);
    if (instance?.spec.tenant !== tenant) throw instanceNotFound(id);
    return instance;
  }

  #running(tenant: string, id: string): void {
    const { status } = this.#find(tenant, id);
    if (status === 'PAUSED') throw isPaused(id);
    if (status !== 'RUNNING') throw notRunning(id);
  }
}

export function newInstance(spec: InstanceSpec): Instance {
  return {
    id: randomUUID(),
    spec,
    status: 'RUNNING',
    statusReason: '',
    loadError: '',
    restarts: 0,
    restartAtMs: 0,
    createdAtMs: Date.UTC(2026, 0, 2, 3, 4, 5),
    startedAtMs: Date.UTC(2026, 0, 2, 3, 4, 6),
    nodeId: 'node-1',
    labels: spec.labels ?? {},
    expiresAtMs: spec.ttlMs === undefined ? 0 : Date.now() + spec.ttlMs,
    onExpiry: spec.onExpiry ?? 'delete',
    pausedAtMs: 0,
    sandbox: { ...NO_SANDBOX, sandboxId: '4711', nodeIp: '127.0.0.1', isolation: ['mount', 'pid'] },
  };
}
