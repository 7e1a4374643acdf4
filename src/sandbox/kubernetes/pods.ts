import type { V1Pod } from '@kubernetes/client-node';
import { LRUCache } from 'lru-cache';
import { deadlineExceeded, ServiceError, unavailable } from '../../core/error.ts';
import { retry } from '../../lib/backoff.ts';
import { within } from '../../lib/deadline.ts';
import { linkedTo, onAbort } from '../../lib/linked-signal.ts';
import type { ExitResult } from '../driver.ts';
import { jobOfPod, removeJob } from './batch-job.ts';
import { type KubernetesApi, statusOf } from './cluster.ts';
import { LABEL_INSTANCE } from './labels.ts';
import { claimedAtMs, type PodSandbox } from './pod-sandbox.ts';
import { containerIdOf, exitOf, type PodState, stateOf } from './pod-state.ts';
import type { Watched } from './watched.ts';

const RETRY = { firstMs: 200, longestMs: 5_000 };
/** Limit on retries after another request changed the pod between read and delete. */
const MAX_CONFLICTS = 8;
const MAX_REMEMBERED = 20_000;
/** Maximum delay of the cluster's report of an end behind the manager's. */
const SEEN_MS = 3_000;
const GONE_MS = 25_000;
/** Time limit when the node does not answer. The node will not confirm soon, and a caller waits. */
const SILENT_GONE_MS = 2_000;
const END_MS = 12_000;

export type SandboxPodState =
  | Exclude<PodState, { readonly state: 'starting' }>
  | { readonly state: 'starting' | 'gone' };

/** Tracks and ends the pods of sandboxes, with state from the one watch. */
export class SandboxPods {
  readonly #cluster: KubernetesApi;
  readonly #pods: Watched<V1Pod>;
  /** Sandboxes that this service is ending, by `keyOf`. */
  readonly #ending = new LRUCache<string, true>({ max: MAX_REMEMBERED });
  /**
   * First known exits, by `keyOf`. The manager reports an exit before the cluster does; the first report
   * stays valid.
   */
  readonly #exits = new LRUCache<string, ExitResult>({ max: MAX_REMEMBERED });

  constructor(cluster: KubernetesApi, pods: Watched<V1Pod>) {
    this.#cluster = cluster;
    this.#pods = pods;
  }

  pathOf(name: string): string {
    return `/api/v1/namespaces/${this.#cluster.namespace}/pods/${name}`;
  }

  /**
   * Returns the pod of the sandbox from the watch. Undefined: it does not exist, or another pod has its name.
   */
  podOf({ pod: name, uid }: PodSandbox): V1Pod | undefined {
    const pod = this.#pods.get(name);
    return pod?.metadata?.uid === uid ? pod : undefined;
  }

  /** Returns the state of the sandbox from the watch and from known exits. */
  stateOf(sandbox: PodSandbox): SandboxPodState {
    const known = this.#exits.get(keyOf(sandbox));
    const seen = this.stateOfPod(sandbox);
    return known === undefined || seen.state === 'gone' ? seen : { state: 'ended', exit: known };
  }

  /** Returns the state of the sandbox's pod. A pod of a pool may continue after its instance has ended. */
  stateOfPod(sandbox: PodSandbox): SandboxPodState {
    const pod = this.podOf(sandbox);
    if (pod === undefined || !isClaimedBy(pod, sandbox)) return { state: 'gone' };
    const state = stateOf(pod);
    // The container of a pool's pod was restarted, so the instance has ended.
    const isAnother = sandbox.containerId !== '' && ![sandbox.containerId, ''].includes(containerIdOf(pod));
    if (isAnother && state.state !== 'unknown') return { state: 'ended', exit: exitOf(pod) };
    return state.state === 'starting' ? { state: 'starting' } : state;
  }

  /**
   * Resolves when the manager or the cluster reports that the instance has ended. Rejects when `signal`
   * aborts.
   */
  async wait(sandbox: PodSandbox, signal: AbortSignal): Promise<ExitResult> {
    const known = this.#exits.get(keyOf(sandbox));
    if (known !== undefined) return known;
    const exit = await this.#firstKnown(sandbox, signal);
    // A concurrent wait may have stored an exit first.
    const first = this.#exits.get(keyOf(sandbox)) ?? exit;
    if (this.stateOf(sandbox).state !== 'gone') this.#exits.set(keyOf(sandbox), first);
    return first;
  }

  async #firstKnown(sandbox: PodSandbox, signal: AbortSignal): Promise<ExitResult> {
    const { controller: over, unlink } = linkedTo(signal);
    try {
      const told = this.#untilToldByManager(sandbox, over.signal);
      const seen = this.#untilSeen(sandbox, over.signal);
      for (const promise of [told, seen]) promise.catch(() => undefined);
      const first = this.#withoutOurs(sandbox, await Promise.race([told, seen]));
      // The manager sees neither the memory limit of the whole pod nor the cause of the pod's end. The
      // cluster reports both shortly after.
      const isKilled = first.signal === 'SIGKILL' && !first.oomKilled && sandbox.poolId === null;
      if (!isKilled && first.cause === undefined) return first;
      const later = await within(seen, SEEN_MS, 'it is not seen').catch(() => first);
      return later.cause === undefined && first.cause !== undefined ? first : later;
    } finally {
      unlink();
      over.abort();
    }
  }

  /**
   * Resolves when the watch shows the end. The container's end may appear before the pod's reason. An end
   * without a reason counts when the pod is over too, or after `SEEN_MS`.
   */
  #untilSeen(sandbox: PodSandbox, signal: AbortSignal): Promise<ExitResult> {
    return new Promise((resolve, reject) => {
      let last: V1Pod | undefined;
      let isLate = false;
      let timer: NodeJS.Timeout | undefined;
      const check = (): boolean => {
        const state = this.stateOf(sandbox);
        if (state.state === 'ended' && !isLate && this.#mayHaveReason(sandbox, state.exit)) {
          timer ??= setTimeout(() => {
            isLate = true;
            if (check()) end();
          }, SEEN_MS);
          return false;
        }
        if (state.state === 'ended') resolve(this.#withoutOurs(sandbox, state.exit));
        // Before the first list no pod is known.
        else if (state.state === 'gone' && this.#pods.isListed) resolve(this.#withoutOurs(sandbox, goneExit(last)));
        else return false;
        return true;
      };
      const unsubscribe = this.#pods.subscribe((name, now, before) => {
        if (name !== sandbox.pod) return;
        if (before?.metadata?.uid === sandbox.uid) last = before;
        if (now?.metadata?.uid === sandbox.uid) last = now;
        if (check()) end();
      });
      const release = onAbort(signal, () => {
        clearTimeout(timer);
        unsubscribe();
        reject(notEnded());
      });
      const end = () => {
        clearTimeout(timer);
        unsubscribe();
        release();
      };
      last = this.podOf(sandbox);
      if (check()) return end();
      this.#pods.open().then(
        () => check() && end(),
        // The watch retries by itself.
        () => undefined,
      );
    });
  }

  /**
   * Asks the manager for the exit and reconnects on failure, until `signal` aborts. If the manager reports no
   * instance, the exit is unknown.
   */
  async #untilToldByManager(sandbox: PodSandbox, signal: AbortSignal): Promise<ExitResult> {
    const told = async () => {
      if (signal.aborted) throw notEnded();
      return await sandbox.manager.wait(signal).catch((error: unknown) => {
        if (!signal.aborted && error instanceof ServiceError && error.code === 'failed_precondition')
          return exitOf(undefined);
        throw error;
      });
    };
    return await retry(told, RETRY, signal, () => {
      if (signal.aborted) throw notEnded();
    });
  }

  /**
   * Returns true while the cluster may still report a reason. Until the pod is over, its state does not show
   * if the cluster or the instance caused the end.
   */
  #mayHaveReason(sandbox: PodSandbox, exit: ExitResult): boolean {
    if (exit.cause !== undefined || exit.oomKilled || this.#ending.has(keyOf(sandbox))) return false;
    const phase = this.podOf(sandbox)?.status?.phase;
    const isSignalled = exit.code === 0 || exit.signal === 'SIGTERM' || exit.signal === 'SIGKILL';
    return isSignalled && phase !== 'Failed' && phase !== 'Succeeded' && !this.#exits.has(keyOf(sandbox));
  }

  #withoutOurs(sandbox: PodSandbox, exit: ExitResult): ExitResult {
    if (!this.#ending.has(keyOf(sandbox)) || exit.cause === undefined) return exit;
    const { cause: _ours, ...rest } = exit;
    return rest;
  }

  /** Marks the sandbox as ended by this service, so that the cluster is not named as the cause. */
  isEnding(sandbox: PodSandbox): void {
    this.#ending.set(keyOf(sandbox), true);
  }

  /**
   * Asks the node to end the pod without deleting it, so that its logs stay. For a pod whose manager does not
   * answer. Fails with `unavailable` when the cluster does not confirm the end.
   */
  async end(sandbox: PodSandbox): Promise<void> {
    const body = [
      { op: 'test', path: '/metadata/uid', value: sandbox.uid },
      { op: 'add', path: '/spec/activeDeadlineSeconds', value: 1 },
    ];
    try {
      const path = this.pathOf(sandbox.pod);
      const pod = await this.#cluster.request<V1Pod>('end a pod', { method: 'PATCH', path, patch: 'json', body });
      this.#pods.learn(pod);
    } catch (error) {
      if (statusOf(error) === 404 || statusOf(error) === 422) return;
      throw error;
    }
    const late = () => unavailable(`the end of the pod ${sandbox.pod} is not confirmed: ${this.#silence(sandbox)}`);
    await this.#bounded(over => this.#untilSeen(sandbox, over), END_MS, late);
  }

  /**
   * Deletes the pod, and the Job that owns it, and waits for the cluster's confirmation. Succeeds when the
   * pod does not exist.
   */
  async remove(name: string, uid: string): Promise<void> {
    const isThere = () => this.#pods.get(name)?.metadata?.uid === uid;
    const job = jobOfPod(name);
    if (job !== null) await removeJob(this.#cluster, job);
    await this.#delete(name, uid);
    const gone = (over: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        const unsubscribe = this.#pods.subscribe(() => {
          if (isThere()) return;
          unsubscribe();
          resolve();
        });
        onAbort(over, () => {
          unsubscribe();
          reject(over.reason);
        });
        if (isThere()) return;
        unsubscribe();
        resolve();
      });
    const pod = this.#pods.get(name);
    const node = pod?.spec?.nodeName ?? '';
    const isSilent = pod !== undefined && stateOf(pod).state === 'unknown';
    await this.#bounded(gone, isSilent ? SILENT_GONE_MS : GONE_MS, () =>
      unavailable(`the end of the pod ${name} is not confirmed: its node ${node} has not answered yet`),
    );
  }

  /** Deletes the version of the pod that was seen. Reads a pod again that changed meanwhile. */
  async #delete(name: string, uid: string): Promise<void> {
    let pod = this.#pods.get(name);
    for (let conflicts = 0; ; conflicts++) {
      const isOver = pod?.status?.phase === 'Failed' || pod?.status?.phase === 'Succeeded';
      const resourceVersion = pod?.metadata?.uid === uid ? pod.metadata.resourceVersion : undefined;
      const body = {
        gracePeriodSeconds: isOver ? 0 : 1,
        preconditions: { uid, ...(resourceVersion !== undefined && { resourceVersion }) },
      };
      try {
        await this.#cluster.request('delete a pod', { method: 'DELETE', path: this.pathOf(name), body });
        return;
      } catch (error) {
        const status = statusOf(error);
        if (status === 404) return;
        if (status !== 409 || conflicts === MAX_CONFLICTS) throw error;
        const now = await this.#cluster
          .request<V1Pod>('read a pod', { path: this.pathOf(name) })
          .catch((failure: unknown) => {
            if (statusOf(failure) === 404) return undefined;
            throw failure;
          });
        // Another pod has the name, so the pod to delete no longer exists.
        if (now === undefined || now.metadata?.uid !== uid) return;
        pod = now;
      }
    }
  }

  #silence(sandbox: PodSandbox): string {
    const node = this.podOf(sandbox)?.spec?.nodeName ?? '';
    return this.#pods.problem ?? `its node ${node} does not answer`;
  }

  async #bounded<T>(work: (over: AbortSignal) => Promise<T>, timeoutMs: number, late: () => Error): Promise<T> {
    const over = new AbortController();
    const working = work(over.signal);
    working.catch(() => undefined);
    try {
      return await within(working, timeoutMs, late);
    } finally {
      over.abort();
    }
  }
}

/** Returns the exit of a removed pod, as it was last seen, perhaps long before its end. */
function goneExit(last: V1Pod | undefined): ExitResult {
  const exit = exitOf(last);
  const isKnown = exit.cause !== undefined || exit.code !== null || exit.signal !== null;
  return isKnown ? exit : { ...exit, cause: 'its pod was deleted' };
}

/** Identifies one claim of a pod. A pod of a pool may get the same instance again after a restart. */
function keyOf({ uid, instanceId, claimedAtMs: claimed }: PodSandbox): string {
  return `${uid} ${instanceId} ${claimed}`;
}

/** Returns true if the pod still has this claim, and not a later claim by any instance. */
export function isClaimedBy(pod: V1Pod, { instanceId, claimedAtMs: claimed }: PodSandbox): boolean {
  return pod.metadata?.labels?.[LABEL_INSTANCE] === instanceId && claimedAtMs(pod) === claimed;
}

function notEnded(): ServiceError {
  return deadlineExceeded('the sandbox has not ended');
}
