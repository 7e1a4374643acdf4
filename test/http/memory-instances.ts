import { randomUUID } from 'node:crypto';
import type { AgentInstances, CreateInstance, InstanceQuery } from '../../src/agents/contract.ts';
import { alreadyExists, failedPrecondition, notFound, type ServiceError } from '../../src/core/error.ts';
import { type Instance, type InstanceSpec, NO_SANDBOX } from '../../src/core/instance.ts';
import type { Call, CallOutcome } from '../../src/runtime/channel.ts';
import type { SandboxAccess } from '../../src/sandbox/access.ts';
import type { ExecRequest, ExecResult, LogRequest } from '../../src/sandbox/driver.ts';

/** The scheduler's contract in memory, so that an entry can be tested alone; what user code does is set by the test. */
export class MemoryInstances implements AgentInstances {
  readonly calls: { id: string; call: Call }[] = [];
  readonly deletes: { id: string; graceMs: number | null }[] = [];
  readonly queries: InstanceQuery[] = [];
  /** What every instance is like inside. */
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
  readonly #keys = new Map<string, { id: string; requestHash: string }>();

  async create(request: CreateInstance): Promise<Instance> {
    const { spec, idempotency } = request;
    const known = idempotency && this.#keys.get(idempotency.key);
    if (known && known.requestHash !== idempotency.requestHash) {
      throw alreadyExists(`idempotency key ${idempotency.key} was used with another request`);
    }
    if (known) return this.#find(spec.tenant, known.id);
    for (const other of this.#instances.values()) {
      const { tenant, namespace, name } = other.spec;
      if (tenant === spec.tenant && namespace === spec.namespace && name === spec.name) {
        throw alreadyExists(`agent ${namespace}/${name} already exists`, { body: { instance_id: other.id } });
      }
    }
    const instance = { ...newInstance(spec), ...(await this.onCreate(request)) };
    this.#instances.set(instance.id, instance);
    if (idempotency) this.#keys.set(idempotency.key, { id: instance.id, requestHash: idempotency.requestHash });
    return instance;
  }

  async invoke(tenant: string, id: string, call: Call): Promise<CallOutcome> {
    if (this.#find(tenant, id).status !== 'RUNNING') throw notFound(`instance not found: ${id}`);
    this.calls.push({ id, call });
    return await this.onInvoke(call);
  }

  /** What tests put here is what `refusal` answers. */
  full: ServiceError | undefined;

  refusal(): ServiceError | undefined {
    return this.full;
  }

  async get(tenant: string, id: string): Promise<Instance> {
    return this.#find(tenant, id);
  }

  async list(query: InstanceQuery) {
    this.queries.push(query);
    const instances = [...this.#instances.values()]
      .filter(({ spec }) => spec.tenant === query.tenant)
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .filter(({ id }) => query.cursor === null || id > query.cursor);
    const page = instances.slice(0, query.limit);
    return { instances: page, nextCursor: page.length < instances.length ? (page.at(-1)?.id ?? null) : null };
  }

  async delete(tenant: string, id: string, graceMs: number | null): Promise<void> {
    this.#find(tenant, id);
    this.deletes.push({ id, graceMs });
    this.#instances.delete(id);
  }

  async restart(tenant: string, id: string): Promise<Instance> {
    const instance = { ...this.#find(tenant, id), status: 'RUNNING' as const };
    return this.put({ ...instance, restarts: instance.restarts + 1 });
  }

  async exec(tenant: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    this.#find(tenant, id);
    this.execs.push(request);
    return await this.onExec(request, signal);
  }

  async access(tenant: string, id: string): Promise<SandboxAccess> {
    this.#find(tenant, id);
    if (this.inside === null) throw failedPrecondition('this test has no sandboxes');
    return this.inside;
  }

  async logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    this.#find(tenant, id);
    this.logRequests.push(request);
    return this.onLogs(request, signal);
  }

  /** Makes an instance stand there without a create. */
  put(instance: Instance): Instance {
    this.#instances.set(instance.id, instance);
    return instance;
  }

  #find(tenant: string, id: string): Instance {
    const instance = this.#instances.get(id);
    if (instance?.spec.tenant !== tenant) throw notFound(`instance not found: ${id}`);
    return instance;
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
    createdAtMs: Date.UTC(2026, 0, 2, 3, 4, 5),
    startedAtMs: Date.UTC(2026, 0, 2, 3, 4, 6),
    nodeId: 'node-1',
    sandbox: { ...NO_SANDBOX, sandboxId: '4711', nodeIp: '127.0.0.1', isolation: ['mount', 'pid'] },
  };
}
