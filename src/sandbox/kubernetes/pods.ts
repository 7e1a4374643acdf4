import type { V1Pod } from '@kubernetes/client-node';
import { LRUCache } from 'lru-cache';
import { deadlineExceeded, ServiceError, unavailable } from '../../core/error.ts';
import { backoffMs, pause } from '../../lib/backoff.ts';
import { within } from '../../lib/deadline.ts';
import { linkedTo, onAbort } from '../../lib/linked-signal.ts';
import type { ExitResult } from '../driver.ts';
import { jobOfPod, removeJob } from './batch-job.ts';
import { type Cluster, statusOf } from './cluster.ts';
import type { PodSandbox } from './handle.ts';
import { LABEL_INSTANCE } from './labels.ts';
import { containerIdOf, exitOf, type PodState, stateOf } from './pod-state.ts';
import type { Watched } from './watched.ts';

const RETRY = { firstMs: 200, longestMs: 5_000 };
/** Somebody changed the pod between the look and the delete. */
const MAX_CONFLICTS = 8;
const MAX_REMEMBERED = 20_000;
/** How much later than the manager tells of an end the cluster may. */
const SEEN_MS = 3_000;
const GONE_MS = 25_000;
/** The same on a node that does not answer: it will not confirm anything soon, and somebody waits. */
const SILENT_GONE_MS = 2_000;
const END_MS = 12_000;

export type SandboxPodState =
  | Exclude<PodState, { readonly state: 'starting' }>
  | { readonly state: 'starting' | 'gone' };

/** The pods of sandboxes: their ends, and how they are ended. What is known of them comes from the one watch. */
export class SandboxPods {
  readonly #cluster: Cluster;
  readonly #pods: Watched<V1Pod>;
  /** Pods that this service is ending. */
  readonly #ending = new LRUCache<string, true>({ max: MAX_REMEMBERED });
  /** Ends as they were first known: the manager tells them before the cluster does, and there is one truth. */
  readonly #exits = new LRUCache<string, ExitResult>({ max: MAX_REMEMBERED });

  constructor(cluster: Cluster, pods: Watched<V1Pod>) {
    this.#cluster = cluster;
    this.#pods = pods;
  }

  pathOf(name: string): string {
    return `/api/v1/namespaces/${this.#cluster.namespace}/pods/${name}`;
  }

  /** The pod of the sandbox, as far as the watch knows; undefined when it is not there, or another one's by now. */
  podOf({ pod: name, uid }: PodSandbox): V1Pod | undefined {
    const pod = this.#pods.get(name);
    return pod?.metadata?.uid === uid ? pod : undefined;
  }

  /** What the watch knows of it. */
  stateOf(sandbox: PodSandbox): SandboxPodState {
    const known = this.#exits.get(keyOf(sandbox));
    const seen = this.stateOfPod(sandbox);
    return known === undefined || seen.state === 'gone' ? seen : { state: 'ended', exit: known };
  }

  /** The same of what it runs in: in a pod of a pool that may go on when the instance has ended. */
  stateOfPod(sandbox: PodSandbox): SandboxPodState {
    const pod = this.podOf(sandbox);
    if (pod === undefined || pod.metadata?.labels?.[LABEL_INSTANCE] !== sandbox.instanceId) return { state: 'gone' };
    const state = stateOf(pod);
    // A pool's container starts again; what was in it has ended.
    const isAnother = sandbox.containerId !== '' && ![sandbox.containerId, ''].includes(containerIdOf(pod));
    if (isAnother && state.state !== 'unknown') return { state: 'ended', exit: exitOf(pod) };
    return state.state === 'starting' ? { state: 'starting' } : state;
  }

  /** Resolves when the instance has ended, as its manager or the cluster says, whoever is first. Rejects when `signal` aborts. */
  async wait(sandbox: PodSandbox, signal: AbortSignal): Promise<ExitResult> {
    const known = this.#exits.get(keyOf(sandbox));
    if (known !== undefined) return known;
    const exit = await this.#firstKnown(sandbox, signal);
    // Somebody else may have waited too.
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
      // The manager knows neither of the memory of the whole pod nor who has it ended: the cluster says it a moment later.
      const isKilled = first.signal === 'SIGKILL' && !first.oomKilled && sandbox.poolId === null;
      if (!isKilled && first.cause === undefined) return first;
      return await within(seen, SEEN_MS, 'it is not seen').catch(() => first);
    } finally {
      unlink();
      over.abort();
    }
  }

  /** Resolves when the watch shows that it has ended. */
  #untilSeen(sandbox: PodSandbox, signal: AbortSignal): Promise<ExitResult> {
    return new Promise((resolve, reject) => {
      let last: V1Pod | undefined;
      const look = (): boolean => {
        const state = this.stateOf(sandbox);
        if (state.state === 'ended') resolve(this.#withoutOurs(sandbox, state.exit));
        // Before the first list nothing is there.
        else if (state.state === 'gone' && this.#pods.isListed) resolve(this.#withoutOurs(sandbox, goneExit(last)));
        else return false;
        return true;
      };
      const unsubscribe = this.#pods.subscribe((name, now, before) => {
        if (name !== sandbox.pod) return;
        if (before?.metadata?.uid === sandbox.uid) last = before;
        if (now?.metadata?.uid === sandbox.uid) last = now;
        if (look()) end();
      });
      const release = onAbort(signal, () => {
        unsubscribe();
        reject(notEnded());
      });
      const end = () => {
        unsubscribe();
        release();
      };
      last = this.podOf(sandbox);
      if (look()) return end();
      this.#pods.open().then(
        () => look() && end(),
        // It goes on by itself.
        () => undefined,
      );
    });
  }

  /** Connects again as long as the cluster does not say that there is nobody to ask. */
  async #untilToldByManager(sandbox: PodSandbox, signal: AbortSignal): Promise<ExitResult> {
    for (let failures = 1; ; failures++) {
      try {
        return await sandbox.manager.wait(signal);
      } catch (error) {
        if (signal.aborted) throw notEnded();
        if (error instanceof ServiceError && error.code === 'failed_precondition') return exitOf(undefined);
        await pause(backoffMs(RETRY, failures), signal);
        if (signal.aborted) throw notEnded();
      }
    }
  }

  #withoutOurs(sandbox: PodSandbox, exit: ExitResult): ExitResult {
    if (!this.#ending.has(sandbox.uid) || exit.cause === undefined) return exit;
    const { cause: _ours, ...rest } = exit;
    return rest;
  }

  /** This service is about to end it: that is nobody else's doing then. */
  isEnding({ uid }: PodSandbox): void {
    this.#ending.set(uid, true);
  }

  /**
   * Has the node end the pod without removing it: its logs stay. For one whose manager does not answer. Fails with `unavailable` when nobody confirms that.
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

  /** Deletes the pod, with the Job that it is of, and waits until the cluster has confirmed it. Absent = success. */
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
    this.#ending.delete(uid);
  }

  /** With the version that was seen: what was claimed or changed meanwhile is looked at again. */
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
        // Another pod has its name: the one that was meant is gone.
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

/** Of a pod that is not there any more, as it was last seen: perhaps long before its end. */
function goneExit(last: V1Pod | undefined): ExitResult {
  const exit = exitOf(last);
  const isKnown = exit.cause !== undefined || exit.code !== null || exit.signal !== null;
  return isKnown ? exit : { ...exit, cause: 'its pod was deleted' };
}

function keyOf({ uid, instanceId }: PodSandbox): string {
  return `${uid} ${instanceId}`;
}

function notEnded(): ServiceError {
  return deadlineExceeded('the sandbox has not ended');
}
