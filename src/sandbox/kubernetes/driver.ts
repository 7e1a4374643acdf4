import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import { failedPrecondition, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import type { SandboxFacts } from '../../core/instance.ts';
import { endsWithin, within } from '../../lib/deadline.ts';
import { OpenedLog } from '../../lib/opened-log.ts';
import type { SandboxAccess } from '../access.ts';
import type {
  ExecRequest,
  ExecResult,
  ExitResult,
  ListedSandbox,
  LogChunks,
  LogRequest,
  ProbeResult,
  SandboxDriver,
  SandboxHandle,
  SandboxSpec,
  SandboxState,
  SandboxStats,
  StartedSandbox,
} from '../driver.ts';
import type { DriverContext } from '../driver-definition.ts';
import { Claims } from './claims.ts';
import { KubernetesApi } from './cluster.ts';
import { LABEL_INSTALLATION, LABEL_INSTANCE, LABEL_NODE, LABEL_POOL } from './labels.ts';
import { readLogs } from './logs.ts';
import { makeHandle, PodAccess, type PodSandbox, readHandle } from './pod-sandbox.ts';
import type { PodSettings } from './pod-settings.ts';
import { claimSpecOf, PodStarter, type StartedPod } from './pod-starter.ts';
import { addressOf, containerIdOf } from './pod-state.ts';
import { refusedSettings } from './pod-volumes.ts';
import { isClaimedBy, SandboxPods } from './pods.ts';
import { KubernetesPools } from './pool-backend.ts';
import { probeCluster } from './rights.ts';
import { InstallationSecret } from './secret.ts';
import { Watched } from './watched.ts';

/**
 * Time limit for a manager's answer. A running manager answers immediately; a silent one may be on a lost
 * node.
 */
const MANAGER_MS = 2_000;
const RESET_MS = 10_000;
/** Time for the rest of a start, in addition to the wait for a pod. */
const START_MS = 15_000;
const NEVER = new AbortController().signal;

export interface KubernetesDriverOptions
  extends Pick<
    DriverContext<never>,
    'dataDir' | 'nodeId' | 'installationId' | 'mountPolicy' | 'environment' | 'onlyProbed' | 'logger'
  > {
  readonly kubeconfig: string | null;
  readonly namespace: string | null;
  /** Name of the Secret of the installation. */
  readonly secretName: string;
  /** Image of the installation. */
  readonly image: string;
  /** Settings for pods that are created for one instance. */
  readonly pod: PodSettings;
}

interface Parts {
  readonly cluster: KubernetesApi;
  readonly pods: Watched<V1Pod>;
  readonly replicaSets: Watched<V1ReplicaSet>;
  readonly secret: InstallationSecret;
  readonly claims: Claims;
  readonly pools: KubernetesPools;
}

/** Runs instances as pods of a Kubernetes cluster. See docs/operate/kubernetes.md. */
export class KubernetesDriver implements SandboxDriver {
  readonly name = 'kubernetes';
  readonly pools: KubernetesPools;
  readonly #options: KubernetesDriverOptions;
  readonly #parts: Parts;
  readonly #sandboxPods: SandboxPods;
  readonly #starter: PodStarter;
  readonly #claims: Claims;
  #opening: Promise<void> | undefined;
  #isClosed = false;

  private constructor(options: KubernetesDriverOptions, parts: Parts) {
    this.#options = options;
    this.#parts = parts;
    this.pools = parts.pools;
    this.#claims = parts.claims;
    this.#sandboxPods = new SandboxPods(parts.cluster, parts.pods);
    this.#starter = new PodStarter({ ...options, ...parts, sandboxPods: this.#sandboxPods });
  }

  /**
   * Creates the driver and sends no request. Fails with `failed_precondition` when no cluster is configured
   * or the pod settings are not permitted.
   */
  static open(options: KubernetesDriverOptions): KubernetesDriver {
    const refusal = refusedSettings(options.pod, options.mountPolicy);
    if (refusal !== null) throw failedPrecondition(refusal);
    const cluster = KubernetesApi.open(options);
    const { installationId, logger } = options;
    const labelSelector = `${LABEL_INSTALLATION}=${installationId}`;
    const { namespace } = cluster;
    // One watch covers the pods of all replicas, so that each replica sees the claims of the others.
    const pods = new Watched<V1Pod>({
      ...{ cluster, labelSelector, logger, noun: 'pods' },
      path: `/api/v1/namespaces/${namespace}/pods`,
    });
    const replicaSets = new Watched<V1ReplicaSet>({
      ...{ cluster, labelSelector, logger, noun: 'pools' },
      path: `/apis/apps/v1/namespaces/${namespace}/replicasets`,
    });
    const secret = new InstallationSecret({ cluster, installationId, name: options.secretName });
    const shared = { ...options, cluster, pods, replicaSets, defaultImage: options.image };
    return new KubernetesDriver(options, {
      ...{ cluster, pods, replicaSets },
      secret,
      claims: new Claims(shared),
      pools: new KubernetesPools({ ...shared, prepare: () => secret.get() }),
    });
  }

  async probe(): Promise<ProbeResult> {
    try {
      const degraded = await probeCluster(this.#parts.cluster, this.#options.secretName);
      return {
        available: true,
        capabilities: {
          images: true,
          mounts: true,
          ports: true,
          users: true,
          cpuLimit: true,
          memoryLimit: true,
          pidsLimit: false,
          exec: true,
          isolation: ISOLATION,
        },
        degraded,
      };
    } catch (error) {
      return {
        available: false,
        reason: messageOf(error),
        ...(error instanceof ServiceError && error.code === 'unavailable' && { mayPass: true }),
      };
    }
  }

  async warm(): Promise<void> {
    try {
      await this.#open();
      await this.#parts.secret.get();
    } catch (error) {
      this.#options.logger.warn({ error: messageOf(error) }, 'kubernetes is not available');
    }
  }

  /** Returns the time limit for a start, which is longer when a growing pool must first add a pod. */
  startBudgetMs(spec: SandboxSpec, usualMs: number): number {
    const waitsMs = this.#claims.waitsMs(claimSpecOf(spec));
    return waitsMs === 0 ? usualMs : Math.max(usualMs, waitsMs + START_MS);
  }

  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    if (spec.network === 'none') {
      throw failedPrecondition('a pod has the network of its cluster: network none is not possible with kubernetes');
    }
    await this.#open();
    const started = await this.#starter.start(spec, signal);
    const { pod, key, containerId } = started;
    const handle = makeHandle(spec.instanceId, pod, addressOf(pod), key, containerId);
    return { handle, endpoint: handle.endpoint, facts: factsOf(spec, started) };
  }

  async wait(handle: SandboxHandle, signal: AbortSignal = NEVER): Promise<ExitResult> {
    const sandbox = readHandle(handle);
    this.#assertOpen();
    return await this.#sandboxPods.wait(sandbox, signal);
  }

  async stop(handle: SandboxHandle, graceMs: number): Promise<void> {
    const sandbox = readHandle(handle);
    await this.#openKnown();
    if (this.#hasEnded(sandbox)) return;
    this.#sandboxPods.isEnding(sandbox);
    try {
      await within(sandbox.manager.stop(graceMs), graceMs + MANAGER_MS, 'the pod did not answer in time');
      // The exit status is known shortly after the stop.
      const over = new AbortController();
      const ended = this.#sandboxPods.wait(sandbox, over.signal);
      ended.catch(() => undefined);
      await within(ended, MANAGER_MS, 'its end is not known').finally(() => over.abort());
      return;
    } catch (error) {
      if (this.#hasEnded(sandbox)) return;
      this.#options.logger.debug({ pod: sandbox.pod, err: error }, 'node is ending pod');
    }
    if (sandbox.poolId === null) await this.#sandboxPods.end(sandbox);
    else await this.#sandboxPods.remove(sandbox.pod, sandbox.uid);
  }

  async remove(handle: SandboxHandle): Promise<void> {
    const sandbox = readHandle(handle);
    await this.#openKnown();
    const pod = this.#sandboxPods.podOf(sandbox);
    this.#sandboxPods.isEnding(sandbox);
    if (sandbox.poolId === null) {
      await this.#sandboxPods.remove(sandbox.pod, sandbox.uid);
      return;
    }
    if (pod === undefined || !isClaimedBy(pod, sandbox)) return;
    const isClean = !this.#hasEndedWithPod(sandbox) && (await this.#reset(sandbox));
    await this.#claims.release(pod, { isClean });
  }

  async inspect(handle: SandboxHandle): Promise<SandboxState> {
    const sandbox = readHandle(handle);
    try {
      await this.#openKnown();
    } catch (error) {
      if (this.#isClosed) throw error;
      return { state: 'unknown', reason: messageOf(error) };
    }
    const seen = this.#sandboxPods.stateOf(sandbox);
    if (seen.state === 'gone') return { state: 'gone' };
    if (seen.state === 'ended') return { state: 'exited', exit: seen.exit };
    if (seen.state === 'starting') return { state: 'exited', exit: unknownExit() };
    // The manager reports an end first: an instance may end while its pod continues.
    const asking = new AbortController();
    const told = sandbox.manager.wait(asking.signal);
    const answers = within(sandbox.manager.stats(), MANAGER_MS, 'it does not answer');
    try {
      const exit = await Promise.race([told, answers.then(() => null)]);
      if (exit !== null) return { state: 'exited', exit };
      return { state: 'running' };
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'failed_precondition')
        return { state: 'exited', exit: unknownExit() };
      const now = this.#sandboxPods.stateOf(sandbox);
      if (now.state === 'gone') return { state: 'gone' };
      if (now.state === 'ended') return { state: 'exited', exit: now.exit };
      const node = this.#sandboxPods.podOf(sandbox)?.spec?.nodeName ?? '';
      const why = seen.state === 'unknown' ? seen.why : (this.#parts.pods.problem ?? messageOf(error));
      return { state: 'unknown', reason: `the pod ${sandbox.pod} on ${node} cannot be reached: ${why}` };
    } finally {
      told.catch(() => undefined);
      answers.catch(() => undefined);
      asking.abort();
    }
  }

  whyUnknown(handle: SandboxHandle): string | null {
    if (!this.#parts.pods.isListed) return null;
    const sandbox = readHandle(handle);
    const seen = this.#sandboxPods.stateOf(sandbox);
    return seen.state === 'unknown' ? `the state of the pod ${sandbox.pod} is unknown: ${seen.why}` : null;
  }

  async list(): Promise<readonly ListedSandbox[]> {
    await this.#open();
    const { pods, secret } = this.#parts;
    if (pods.problem !== null) throw unavailable(pods.problem);
    const listed: ListedSandbox[] = [];
    for (const pod of pods.all()) {
      const { [LABEL_NODE]: nodeId, [LABEL_INSTANCE]: instanceId, [LABEL_POOL]: poolId } = pod.metadata?.labels ?? {};
      if (nodeId === undefined || instanceId === undefined) continue;
      const key = await secret.keyOf(pod.metadata?.uid ?? '');
      const containerId = poolId === undefined ? '' : containerIdOf(pod);
      const handle = makeHandle(instanceId, pod, addressOf(pod), key, containerId);
      const { state } = this.#sandboxPods.stateOf(readHandle(handle));
      const isOurs = nodeId === this.#options.nodeId;
      listed.push({
        instanceId,
        ...(isOurs ? {} : { nodeId }),
        handle,
        running: state !== 'ended' && state !== 'gone',
      });
    }
    return listed;
  }

  async exec(handle: SandboxHandle, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    return await this.#running(handle).manager.exec(request, signal);
  }

  async stats(handle: SandboxHandle): Promise<SandboxStats> {
    return await this.#running(handle).manager.stats();
  }

  logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): LogChunks {
    return new OpenedLog(() => this.#readLogs(handle, request, signal));
  }

  async *#readLogs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): AsyncGenerator<Buffer> {
    const sandbox = readHandle(handle);
    this.#assertOpen();
    const path = this.#sandboxPods.pathOf(sandbox.pod);
    const ended = (over: AbortSignal) => this.#sandboxPods.wait(sandbox, over);
    yield* readLogs(this.#parts.cluster, path, sandbox, request, ended, signal);
  }

  access(handle: SandboxHandle): SandboxAccess {
    const sandbox = readHandle(handle);
    return new PodAccess(sandbox, () => this.#hasEnded(sandbox));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#claims.close();
    this.#parts.cluster.close();
    await Promise.all([this.#parts.pods.close(), this.#parts.replicaSets.close()]);
  }

  /** Opens the watches. Fails with `unavailable` when the cluster does not answer. */
  async #open(): Promise<void> {
    this.#assertOpen();
    this.#opening ??= this.#openWatches().catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    await this.#opening;
  }

  async #openWatches(): Promise<void> {
    // The next server sweeps the sandboxes of this driver only if this directory exists.
    await mkdir(join(this.#options.dataDir, 'run', 'kubernetes'), { recursive: true, mode: 0o700 });
    await Promise.all([this.#parts.pods.open(), this.#parts.replicaSets.open()]);
  }

  /**
   * Opens the watches, unless all pods have been listed once. Cached state suffices while the cluster is
   * unreachable.
   */
  async #openKnown(): Promise<void> {
    this.#assertOpen();
    if (!this.#parts.pods.isListed) await this.#open();
  }

  #assertOpen(): void {
    if (this.#isClosed) throw unavailable('the kubernetes driver is closed');
  }

  #running(handle: SandboxHandle): PodSandbox {
    const sandbox = readHandle(handle);
    this.#assertOpen();
    if (this.#hasEnded(sandbox)) throw failedPrecondition(`the sandbox of ${handle.instanceId} does not run`);
    return sandbox;
  }

  #hasEnded(sandbox: PodSandbox): boolean {
    if (!this.#parts.pods.isListed) return false;
    const { state } = this.#sandboxPods.stateOf(sandbox);
    return state === 'gone' || state === 'ended';
  }

  /** Returns true when the sandbox's pod cannot be reused. */
  #hasEndedWithPod(sandbox: PodSandbox): boolean {
    return this.#sandboxPods.stateOfPod(sandbox).state !== 'running';
  }

  async #reset({ manager, pod }: PodSandbox): Promise<boolean> {
    const over = new AbortController();
    try {
      return await endsWithin(manager.reset(over.signal), RESET_MS);
    } catch (error) {
      this.#options.logger.warn({ pod, err: error }, 'cannot reset pod for another instance');
      return false;
    } finally {
      over.abort();
    }
  }
}

function unknownExit(): ExitResult {
  return { code: null, signal: null, oomKilled: false, atMs: Date.now() };
}

/** Isolation that every node gives to this driver's containers. */
export const ISOLATION = [
  ...['mount', 'pid', 'ipc', 'uts', 'net', 'seccomp', 'no_new_privs', 'capabilities'],
  ...['cgroup.memory', 'cgroup.cpu'],
];

/** Returns the facts about the pod for the caller of the start. */
export function factsOf(spec: SandboxSpec, { pod, started, poolId, whyNoPool }: StartedPod): SandboxFacts {
  const podIp = addressOf(pod);
  return {
    sandboxId: pod.metadata?.name ?? '',
    nodeIp: pod.status?.hostIP ?? '',
    sandboxIp: podIp,
    // The network of a cluster is flat, so ports are reached at the pod's own address.
    portMappings: spec.ports.map(({ protocol, port }) => ({
      protocol,
      containerPort: port,
      hostIp: podIp,
      hostPort: port,
    })),
    isolation: ISOLATION,
    warnings: [...started.warnings, ...(poolId === null ? [`it has a pod of its own: ${whyNoPool}`] : [])],
    placement: { nodeName: pod.spec?.nodeName ?? '', poolId, whyNoPool },
  };
}
