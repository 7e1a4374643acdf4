import { NO_CALLS_KEPT } from '../../src/core/finished-call.ts';
import type { FunctionCallHeaders } from '../../src/core/function-call.ts';
import { readFunctionCallHeaders } from '../../src/core/function-call.ts';
import type { Machine } from '../../src/functions/capacity.ts';
import type { FunctionCatalog, FunctionDefinition } from '../../src/functions/catalog.ts';
import type { FunctionInstance, InstanceLauncher } from '../../src/functions/function-instance.ts';
import {
  type FunctionInvocation,
  FunctionInvoker,
  type FunctionInvokerOptions,
  type FunctionResult,
} from '../../src/functions/function-invoker.ts';
import type { GroupKey } from '../../src/functions/policy.ts';
import { TenantBudget } from '../../src/lib/budgets.ts';
import type { Call, CallOutcome } from '../../src/runtime/call.ts';
import { FakeClock, settle } from '../fakes/fake-clock.ts';

export const FUNCTION_URN = 'sn:cn:yrk:default:function:0@svc@hello';
export const URN = `${FUNCTION_URN}:$latest`;

export function functionDefinition(
  changes: Partial<FunctionDefinition> = {},
  scaling: Partial<FunctionDefinition['scaling']> = {},
) {
  return {
    urn: URN,
    tenant: 'default',
    name: '0@svc@hello',
    version: '$latest',
    revisionId: 'r1',
    sandboxType: 'fake',
    runtime: 'python3.11',
    handler: 'm.f',
    initializer: '',
    preStop: '',
    code: { storage: 'local', path: '/code' },
    rootfs: { type: 'host', imageUrl: '', user: '' },
    ports: [],
    mounts: [],
    environment: {},
    cpuMillis: 500,
    memoryMb: 128,
    customResources: '',
    timeoutMs: 60_000,
    initTimeoutMs: 30_000,
    preStopTimeoutMs: 0,
    usesSessionContext: false,
    poolId: '',
    ...changes,
    scaling: {
      concurrency: 1,
      minInstances: 0,
      maxInstances: 10,
      scaleDownMs: 60_000,
      slaQuotaMs: null,
      maxWaiting: 100,
      oneshot: false,
      ...scaling,
    },
  } satisfies FunctionDefinition;
}

type Labels = Awaited<ReturnType<FunctionCatalog['labels']>>;

/** A registry that contains the functions which a test adds. */
export class FakeCatalog implements FunctionCatalog {
  readonly functions = new Map<string, FunctionDefinition>();
  readonly reservations = new Map<string, Labels>();
  /** Number of function reads so far. */
  finds = 0;
  /** Each read waits for this promise after its lookup. */
  gate: Promise<void> = Promise.resolve();
  readonly #listeners = new Set<(functionUrn: string | null, mayBeWarm: boolean) => void>();

  async find(urn: string): Promise<FunctionDefinition | null> {
    this.finds += 1;
    const found = this.functions.get(urn) ?? null;
    await this.gate;
    return found;
  }

  async labels(urn: string): Promise<Labels> {
    return this.reservations.get(urn) ?? new Map();
  }

  async warm(functionUrn: string | null): Promise<readonly string[]> {
    const isWarm = ({ urn, scaling }: FunctionDefinition) =>
      scaling.minInstances > 0 || [...(this.reservations.get(urn)?.values() ?? [])].some(({ min }) => min > 0);
    return [...this.functions.values()]
      .filter(fn => isWarm(fn) && (functionUrn === null || fn.urn.startsWith(`${functionUrn}:`)))
      .map(({ urn }) => urn);
  }

  onChange(listener: (functionUrn: string | null, mayBeWarm: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  put(fn: FunctionDefinition): void {
    this.functions.set(fn.urn, fn);
    this.tell(fn.urn);
  }

  reserve(urn: string, label: string, bounds: { readonly min: number; readonly max: number }): void {
    this.reservations.set(urn, new Map([...(this.reservations.get(urn) ?? []), [label, bounds]]));
    this.tell(urn);
  }

  remove(urn: string): void {
    this.functions.delete(urn);
    this.reservations.delete(urn);
    this.tell(urn);
  }

  tell(urn: string): void {
    for (const listener of this.#listeners) listener(urn.replace(/:[^:]*$/, ''), true);
  }
}

interface RunningCall {
  readonly call: Call;
  finish(outcome?: Partial<CallOutcome>): void;
  fail(error: Error): void;
}

/** An instance whose calls end when the test says so. */
export class FakeInstance implements FunctionInstance {
  readonly id: string;
  readonly urn: string;
  readonly revisionId: string;
  readonly key: GroupKey;
  readonly startedAtMs = 0;
  readonly timings = { startMs: 5, loadMs: 2 };
  readonly ended: Promise<string>;
  readonly calls: RunningCall[] = [];
  isConnected = true;
  isStopped = false;
  #end!: (reason: string) => void;

  constructor(id: string, fn: FunctionDefinition, key: GroupKey) {
    this.id = id;
    this.urn = fn.urn;
    this.revisionId = fn.revisionId;
    this.key = key;
    this.ended = new Promise(resolve => {
      this.#end = resolve;
    });
  }

  call(call: Call): Promise<CallOutcome> {
    return new Promise((resolve, reject) => {
      const remove = () => {
        const at = this.calls.indexOf(running);
        if (at >= 0) this.calls.splice(at, 1);
      };
      const running: RunningCall = {
        call,
        finish: outcome => {
          remove();
          resolve({ ok: true, data: Buffer.from(`"${this.id}"`), runMicros: 1000, ...outcome } as CallOutcome);
        },
        fail: error => {
          remove();
          reject(error);
        },
      };
      this.calls.push(running);
    });
  }

  credit(): void {}

  async *logs(): AsyncGenerator<Buffer> {
    yield Buffer.from(`line of ${this.id}\nanother\n`);
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    this.#end('stopped');
  }

  die(): void {
    this.isConnected = false;
    this.#end('signal SIGKILL');
  }
}

export class FakeLauncher implements InstanceLauncher {
  readonly launched: FakeInstance[] = [];
  readonly adoptable: FakeInstance[] = [];
  failure: Error | null = null;
  isClosed = false;

  async launch(fn: FunctionDefinition, key: GroupKey): Promise<FunctionInstance> {
    if (this.failure) throw this.failure;
    const instance = new FakeInstance(`i${this.launched.length + 1}`, fn, key);
    this.launched.push(instance);
    return instance;
  }

  async adopt(): Promise<readonly FunctionInstance[]> {
    return this.adoptable;
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }

  get live(): FakeInstance[] {
    return this.launched.filter(instance => !instance.isStopped && instance.isConnected);
  }
}

/** A `FunctionInvoker` over fakes with one registered function. */
export class InvokerHarness {
  readonly catalog = new FakeCatalog();
  readonly launcher = new FakeLauncher();
  readonly clock = new FakeClock();
  readonly observed: string[] = [];
  readonly invoker: FunctionInvoker;

  constructor(options: Partial<FunctionInvokerOptions> = {}) {
    this.catalog.functions.set(URN, functionDefinition());
    this.invoker = new FunctionInvoker({
      catalog: this.catalog,
      launcher: this.launcher,
      clock: this.clock,
      capacity: { maxInstances: 100, maxInstancesPerTenant: 100, machine: machineOf(4000, 8192) },
      maxWaitMs: 30_000,
      maxWaitingPerTenant: 1000,
      openCallBytes: new TenantBudget(64 * 1024 * 1024),
      observe: (_tenant, _name, code) => void this.observed.push(code),
      callSink: NO_CALLS_KEPT,
      log: { info: () => undefined, warn: () => undefined, error: () => undefined },
      ...options,
    });
  }

  invoke(more: Partial<FunctionInvocation> & { sent?: Record<string, string>; signal?: AbortSignal } = {}) {
    const { sent = {}, signal, ...rest } = more;
    const headers: FunctionCallHeaders = readFunctionCallHeaders(sent);
    const result: Promise<FunctionResult> = this.invoker.invoke({
      urn: URN,
      tenant: null,
      headers,
      call: {
        header: { traceId: 't', traceparent: '', requestId: 'r' },
        body: Buffer.from('{}'),
        ...(signal ? { signal } : {}),
      },
      ...rest,
    });
    // The test checks the result later.
    result.catch(() => undefined);
    return result;
  }
}

/** Returns a machine of that size that grants every reservation. */
export function machineOf(cpuMillis: number, memoryMb: number): Machine {
  return {
    isLargeEnough: key => key.cpuMillis <= cpuMillis && key.memoryMb <= memoryMb,
    isFull: () => false,
    reserve: () => undefined,
    release: () => undefined,
    onReleased: () => undefined,
  };
}

/** Starts a call; returns its promise and the instance on which it runs. */
export async function running(harness: InvokerHarness, more: Parameters<InvokerHarness['invoke']>[0] = {}) {
  const result = harness.invoke(more);
  await settle();
  const instance = harness.launcher.launched.findLast(({ calls }) => calls.length > 0);
  if (!instance) throw new Error('the call found no instance');
  return { result, instance };
}

export async function call(harness: InvokerHarness, more: Parameters<InvokerHarness['invoke']>[0] = {}) {
  const { result, instance } = await running(harness, more);
  instance.calls.at(-1)?.finish();
  return await result;
}
