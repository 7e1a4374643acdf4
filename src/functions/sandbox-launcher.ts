import { randomUUID } from 'node:crypto';
import type { CodeStore, PlacedCode } from '../code/code-store.ts';
import { mountsBelow } from '../code/layer-files.ts';
import { USER_CODES } from '../core/codes.ts';
import { failedPrecondition, ServiceError } from '../core/error.ts';
import type { InstanceSpec, MountSpec } from '../core/instance.ts';
import { LAMBDA_LAYERS_ROOT } from '../core/lambda-layers.ts';
import { LAMBDA_RUNTIME, LAMBDA_TASK_ROOT } from '../core/lambda-name.ts';
import type { Lease } from '../core/lease.ts';
import { runsInCluster } from '../core/sandbox-types.ts';
import type { SecretSource } from '../core/secret.ts';
import { CallLimiter } from '../instances/call-limiter.ts';
import type { DriverSource } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import type { LayerPlaces } from '../instances/layer.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { type SandboxRules, toStart, withSecrets } from '../instances/sandbox-spec.ts';
import type { Start } from '../instances/start.ts';
import type { TenantBudget } from '../lib/budgets.ts';
import { timeoutSignal } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import { newSecret } from '../lib/random-ids.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogChunks, LogRequest, SandboxStats } from '../sandbox/driver.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import type { FunctionDefinition } from './catalog.ts';
import { CodeFailure, type FunctionInstance, type InstanceLauncher, type StartTimings } from './function-instance.ts';
import type { GroupKey } from './policy.ts';

export interface SandboxLauncherOptions extends SandboxRules {
  readonly instances: Instances;
  readonly drivers: DriverSource;
  readonly codeStore: CodeStore;
  /** Places of the dependency layers. Absent: no dependencies are installed. */
  readonly layers?: LayerPlaces;
  /** Absent: no secrets exist. */
  readonly secrets?: SecretSource;
  readonly nodeId: string;
  readonly createTimeoutMs: number;
  /** Maximum number of concurrent starts. Further ones queue. */
  readonly maxStarting: number;
  /** Shared with all other holders of open calls' bodies. */
  readonly openCallBytes: TenantBudget;
  readonly log: Log;
}

/** Stored specification of a function's instance, in addition to its URN. */
interface FunctionInstanceSpec {
  readonly revisionId: string;
  readonly key: GroupKey;
  /** Host path that is mounted as its code. */
  readonly codeSource: string;
  /** Host path of its layers for AWS Lambda. Absent: it has none. */
  readonly layersSource?: string;
  readonly stopGraceMs: number;
  readonly stuckGraceMs: number;
}

/** Minimum time for the end of an instance, pre_stop included. */
const STOP_GRACE_MS = 10_000;
/**
 * Time for the end of an instance without pre_stop whose handler is stuck. Short, because other calls wait
 * for its slot.
 */
const STUCK_GRACE_MS = 2_000;

/** Starts and adopts the instances of functions. `Instances` owns their life, and `CodeStore` their code. */
export class SandboxLauncher implements InstanceLauncher {
  readonly #options: SandboxLauncherOptions;
  readonly #instances: Instances;
  /** Instances that were adopted after a restart, before `adopt` collects them. */
  readonly #inherited: FunctionInstance[] = [];
  #onAdopted = (instance: FunctionInstance): void => void this.#inherited.push(instance);
  /** Number of running starts. `#turns` has those that wait. */
  #startsNow = 0;
  readonly #turns: (() => void)[] = [];
  #isClosed = false;

  constructor(options: SandboxLauncherOptions) {
    this.#options = options;
    this.#instances = options.instances;
    this.#instances.registerOwner('function', {
      // `Group` bounds the calls per instance. Here only the bytes of their bodies are bounded.
      limiter: new CallLimiter({ maxWaitingCalls: Number.MAX_SAFE_INTEGER, bytes: options.openCallBytes }),
      adopted: (live, record) => this.#onAdopted(this.#serve(live, record, NO_TIMINGS)),
      ended: ({ id }) => this.#releaseCode(id),
    });
  }

  async launch(fn: FunctionDefinition, key: GroupKey, lease: Lease): Promise<FunctionInstance> {
    const id = randomUUID();
    await this.#turn();
    const release = this.#instances.lock(id);
    try {
      if (this.#isClosed) throw failedPrecondition('the server is stopping');
      return await this.#launch(id, fn, key, lease);
    } catch (error) {
      await this.#options.codeStore.release(id);
      await this.#options.layers?.release(id);
      throw error;
    } finally {
      release();
      const next = this.#turns.shift();
      if (next) next();
      else this.#startsNow -= 1;
    }
  }

  async adopt(onLate: (instance: FunctionInstance) => void): Promise<readonly FunctionInstance[]> {
    const { codeStore, nodeId } = this.#options;
    // Keeps the code of every instance that is not known to be dead.
    const rows = await this.#instances.rows.listWithSandbox(nodeId, 'function');
    for (const row of rows) {
      const { codeSource, layersSource = '' } = specOf(row);
      for (const source of [codeSource, layersSource]) codeStore.adopt(source, row.id);
    }
    await codeStore.sweep(new Set(rows.map(row => row.id)));
    this.#onAdopted = onLate;
    return this.#inherited.splice(0);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const turn of this.#turns.splice(0)) turn();
    this.#instances.detach('function', 'the server is stopping');
  }

  async #launch(id: string, fn: FunctionDefinition, key: GroupKey, lease: Lease): Promise<FunctionInstance> {
    const startedMs = performance.now();
    const placed = asTask(fn, await this.#place(id, fn));
    const layers = await this.#placeLambdaLayers(id, fn);
    const spec = await this.#withLayer(toInstanceSpec(id, fn, key, placed, layers?.mounts ?? []), id);
    const secret = newSecret();
    const driver = await this.#options.drivers(fn.sandboxType);
    const start = toStart(driver, { id, secret }, await withSecrets(spec, this.#options.secrets), this.#options);
    const { createTimeoutMs } = this.#options;
    const budgetMs = driver.startBudgetMs?.(start.sandbox, createTimeoutMs) ?? createTimeoutMs;
    const stopGraceMs = Math.max(STOP_GRACE_MS, fn.preStopTimeoutMs);
    const kept: FunctionInstanceSpec = {
      revisionId: fn.revisionId,
      key,
      codeSource: placed.mount?.source ?? '',
      ...(layers !== null && { layersSource: layers.source }),
      stopGraceMs,
      stuckGraceMs: fn.preStop === '' ? STUCK_GRACE_MS : stopGraceMs,
    };
    const intent = this.#instances.draft({
      owner: { kind: 'function', key: fn.urn },
      tenant: fn.tenant,
      sandboxType: fn.sandboxType,
      sandbox: start.sandbox,
      concurrency: spec.concurrency,
      maxCallMs: spec.callTimeoutMs,
      spec: JSON.stringify(kept),
    });
    const { live, loadMs } = await this.#instances.launch(
      intent,
      {
        ...start,
        ...(await this.#intend(intent, lease)),
        accept: loadFailure => {
          if (loadFailure) throw new CodeFailure(loadFailure);
        },
      },
      timeoutSignal(budgetMs + spec.initTimeoutMs),
    );
    const timings = { startMs: performance.now() - startedMs - loadMs, loadMs };
    return this.#serve(live, { ...intent, startedAtMs: Date.now() }, timings);
  }

  /**
   * Inserts the record of the instance, or lets the start insert it at the same time. That is safe: a sandbox
   * without a record is an orphan, and lists of function instances show only serving ones.
   */
  async #intend(intent: StoredInstance, lease: Lease): Promise<Pick<Start, 'insert'>> {
    const insert = () => this.#instances.intendUnder(lease, intent);
    // A start in a cluster takes as long as the write.
    if (this.#instances.isCheap(intent) || runsInCluster(intent.sandboxType)) return { insert };
    await insert();
    return {};
  }

  async #place(id: string, fn: FunctionDefinition) {
    try {
      await this.#options.codeStore.checkMounts(fn.mounts);
      return await this.#options.codeStore.place(fn.code, id, fn.tenant);
    } catch (error) {
      throw asLoadFailure(error);
    }
  }

  /** Places the layers for AWS Lambda. Returns null if the function has none. */
  async #placeLambdaLayers(id: string, { tenant, sandboxType, lambdaLayers }: FunctionDefinition) {
    if (lambdaLayers === undefined) return null;
    try {
      const source = await this.#options.codeStore.placeLayers(tenant, lambdaLayers, id);
      const mounts = await mountsBelow(source, LAMBDA_LAYERS_ROOT, !runsInCluster(sandboxType));
      return { source, mounts };
    } catch (error) {
      throw asLoadFailure(error);
    }
  }

  /**
   * Mounts the layer of the dependencies. Registering the function has usually built it. It is built again if
   * it was unused for long, or if the code is a directory that has changed.
   */
  async #withLayer(spec: InstanceSpec, id: string): Promise<InstanceSpec> {
    const { layers } = this.#options;
    if (spec.dependencies === undefined || layers === undefined) return spec;
    try {
      return await layers.place(spec, id);
    } catch (error) {
      throw asLoadFailure(error);
    }
  }

  #serve(
    live: LiveInstance,
    row: Pick<InstanceRecord, 'owner' | 'spec' | 'startedAtMs'>,
    timings: StartTimings,
  ): LiveFunctionInstance {
    return new LiveFunctionInstance(live, row, timings, async (graceMs: number) => {
      await this.#instances.discard(live, graceMs, 'it is not needed any more');
      this.#releaseCode(live.id);
    });
  }

  #releaseCode(id: string): void {
    Promise.all([this.#options.codeStore.release(id), this.#options.layers?.release(id)]).catch((error: unknown) => {
      this.#options.log.warn({ instanceId: id, err: error }, 'cannot release code of instance');
    });
  }

  /** Waits until fewer than `maxStarting` starts run. */
  async #turn(): Promise<void> {
    // Counted before the first await. A start that ends passes its turn to the next.
    if (this.#startsNow < this.#options.maxStarting) this.#startsNow += 1;
    else await new Promise<void>(resolve => this.#turns.push(resolve));
  }
}

/**
 * Makes a failed precondition a load failure of every call: the code, its dependencies and the mounts are the
 * user's.
 */
function asLoadFailure(error: unknown): unknown {
  if (!(error instanceof ServiceError) || error.code !== 'failed_precondition') return error;
  return new CodeFailure({ code: USER_CODES.loadFailed.code, message: error.message });
}

/** Places the code where AWS Lambda has it, unless a mount of the function has it. */
function asTask({ runtime }: FunctionDefinition, placed: PlacedCode): PlacedCode {
  if (runtime !== LAMBDA_RUNTIME || placed.mount === null) return placed;
  return { ...placed, codePath: LAMBDA_TASK_ROOT, mount: { ...placed.mount, target: LAMBDA_TASK_ROOT } };
}

const NO_TIMINGS: StartTimings = { startMs: 0, loadMs: 0 };

function specOf({ spec }: Pick<InstanceRecord, 'spec'>): FunctionInstanceSpec {
  return JSON.parse(spec) as FunctionInstanceSpec;
}

class LiveFunctionInstance implements FunctionInstance {
  readonly id: string;
  readonly urn: string;
  readonly revisionId: string;
  readonly key: GroupKey;
  readonly startedAtMs: number;
  readonly timings: StartTimings;
  readonly ended: Promise<string>;
  readonly #live: LiveInstance;
  readonly #graces: Pick<FunctionInstanceSpec, 'stopGraceMs' | 'stuckGraceMs'>;
  readonly #discard: (graceMs: number) => Promise<void>;
  #resolveEnded!: (reason: string) => void;
  #stopping: Promise<void> | undefined;

  constructor(
    live: LiveInstance,
    row: Pick<InstanceRecord, 'owner' | 'spec' | 'startedAtMs'>,
    timings: StartTimings,
    discard: (graceMs: number) => Promise<void>,
  ) {
    const spec = specOf(row);
    this.#live = live;
    this.id = live.id;
    this.urn = row.owner.key;
    this.revisionId = spec.revisionId;
    this.key = spec.key;
    this.startedAtMs = row.startedAtMs;
    this.timings = timings;
    this.#graces = spec;
    this.#discard = discard;
    this.ended = new Promise(resolve => {
      this.#resolveEnded = resolve;
    });
    // Frees the slot for another instance while the residue of this one is removed.
    void live.ended.then(({ reason }) => this.#resolveEnded(reason));
  }

  get isConnected(): boolean {
    return this.#live.isConnected;
  }

  call(call: Call): Promise<CallOutcome> {
    return this.#live.call(call);
  }

  credit(callId: number, bytes: number): void {
    this.#live.credit(callId, bytes);
  }

  logs(request: LogRequest, signal: AbortSignal): LogChunks {
    return this.#live.driver.logs(this.#live.handle, request, signal);
  }

  stats(): Promise<SandboxStats> {
    return this.#live.driver.stats(this.#live.handle);
  }

  access(): SandboxAccess | undefined {
    return this.#live.driver.access?.(this.#live.handle);
  }

  stop(isStuck = false): Promise<void> {
    this.#stopping ??= this.#stop(isStuck ? this.#graces.stuckGraceMs : this.#graces.stopGraceMs);
    return this.#stopping;
  }

  async #stop(graceMs: number): Promise<void> {
    await this.#discard(graceMs);
    this.#resolveEnded('stopped');
  }
}

function toInstanceSpec(
  id: string,
  fn: FunctionDefinition,
  key: GroupKey,
  placed: Awaited<ReturnType<CodeStore['place']>>,
  layers: readonly MountSpec[],
): InstanceSpec {
  const code = placed.mount === null ? [] : [placed.mount];
  // The code of this machine is missing on the machines of a cluster. A platform mount transfers it.
  const isHandedIn = placed.ours || runsInCluster(fn.sandboxType);
  const poolLabels = key.poolLabels ?? [];
  return {
    tenant: fn.tenant,
    namespace: '',
    name: id,
    sandboxType: fn.sandboxType,
    runtime: fn.runtime,
    ...(fn.httpProfile !== undefined && { httpProfile: fn.httpProfile }),
    codePath: placed.codePath,
    handler: fn.handler,
    initializer: fn.initializer,
    preStop: fn.preStop,
    rootfs: fn.rootfs,
    ports: fn.ports,
    cpuMillis: key.cpuMillis,
    memoryMb: key.memoryMb,
    env: fn.environment,
    workspace: '',
    mounts: isHandedIn ? fn.mounts : [...code, ...fn.mounts],
    platformMounts: isHandedIn ? [...code, ...layers] : layers,
    ...(fn.dependencies !== undefined && { dependencies: fn.dependencies }),
    ...((fn.poolId !== '' || poolLabels.length > 0) && { pool: { id: fn.poolId, labels: poolLabels } }),
    sessionContext: key.sessionContext,
    callTimeoutMs: fn.timeoutMs,
    initTimeoutMs: fn.initTimeoutMs,
    preStopTimeoutMs: fn.preStopTimeoutMs,
    concurrency: fn.scaling.concurrency,
    functionName: fn.name,
    functionVersion: fn.version,
    functionUrn: fn.urn,
  };
}
