import type { V1Pod } from '@kubernetes/client-node';
import { deadlineExceeded, failedPrecondition, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { type HostPathPolicy, isWithin } from '../../core/host-path.ts';
import { backoffMs, pause } from '../../lib/backoff.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { describeExit, type SandboxSpec } from '../driver.ts';
import { makeJob } from './batch-job.ts';
import type { Claim, ClaimSpec, Claims } from './claims.ts';
import { type KubernetesApi, statusOf } from './cluster.ts';
import { LABEL_INSTANCE, LABEL_NODE, ownPodName } from './labels.ts';
import { MANAGER_PORT, type PodCommand, PodManager, type PodStarted } from './manager.ts';
import { IsFile, MountEvents } from './mount-events.ts';
import {
  checkTarget,
  directoriesOf,
  hostPathVolumes,
  normalOf,
  packPlatformMounts,
  startWithMounts,
} from './mounts.ts';
import type { PodSettings } from './pod-settings.ts';
import { addressOf, containerIdOf, stateOf } from './pod-state.ts';
import { CODE_DIR, type PodTemplateOptions, podTemplate, resourcesOf } from './pod-template.ts';
import { setPart } from './pod-volumes.ts';
import type { SandboxPods } from './pods.ts';
import type { InstallationSecret } from './secret.ts';
import type { Watched } from './watched.ts';

/** Delays between attempts to reach a manager that has just started. */
const REACH = { firstMs: 20, longestMs: 500 };
/** Time limit for the reset of a pool's pod. */
const RESET_MS = 10_000;
const ROOT_HOME = '/root';

export interface StarterOptions {
  readonly cluster: KubernetesApi;
  readonly pods: Watched<V1Pod>;
  readonly sandboxPods: SandboxPods;
  readonly secret: InstallationSecret;
  readonly claims: Claims;
  readonly installationId: string;
  readonly secretName: string;
  readonly nodeId: string;
  /** Image of the installation. */
  readonly image: string;
  readonly mountPolicy: HostPathPolicy;
  readonly pod: PodSettings;
  readonly logger: Logger;
}

export interface StartedPod {
  readonly pod: V1Pod;
  readonly manager: PodManager;
  readonly key: string;
  readonly containerId: string;
  readonly started: PodStarted;
  /** Null: the pod was created for its instance, for the reason `whyNoPool`. */
  readonly poolId: string | null;
  readonly whyNoPool: string;
}

/**
 * Starts an instance in a pod of a pool, or in a pod that is created for it. A failed start releases a pool's
 * pod and removes any other.
 */
export class PodStarter {
  readonly #options: StarterOptions;

  constructor(options: StarterOptions) {
    this.#options = options;
  }

  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedPod> {
    for (const { target } of [...spec.mounts, ...(spec.platformMounts ?? [])]) checkTarget(target);
    if (spec.command.kind === 'image' && spec.secretVariables !== undefined) {
      throw failedPrecondition(
        `the variables ${spec.secretVariables.join(', ')} are secrets, and those of the command of an image stand in its pod, where others read them: use a runtime, or read the secret from a volume of your own`,
      );
    }
    const { claims, secret } = this.#options;
    const whyNot = whyNotOfPool(spec);
    if (whyNot !== null) return await this.#startOwn(spec, whyNot, signal);
    const early = new EarlyWork(spec, secret);
    try {
      const claim = await claims
        .claim(claimSpecOf(spec), signal, pod => early.connectTo(pod))
        .catch((error: unknown) => {
          // A `failed_precondition` is reported in place of the generic timeout. The claim's message names
          // the pool that the start waited for, so it is kept.
          const isLate = error instanceof ServiceError && error.code === 'deadline_exceeded';
          throw isLate ? failedPrecondition(error.message, { cause: error }) : error;
        });
      return claim.pod === null
        ? await this.#startOwn(spec, claim.reason, signal)
        : await this.#startClaimed(spec, claim, early, signal);
    } catch (error) {
      early.forget();
      throw error;
    }
  }

  async #startClaimed(
    spec: SandboxSpec,
    { pod, pool }: Extract<Claim, { readonly pod: V1Pod }>,
    early: EarlyWork,
    signal: AbortSignal,
  ): Promise<StartedPod> {
    const { claims, pods } = this.#options;
    pods.learn(pod);
    let manager: PodManager | undefined;
    try {
      const key = await this.#options.secret.keyOf(pod.metadata?.uid ?? '');
      manager = new PodManager({ host: addressOf(pod), port: MANAGER_PORT, key });
      const image = pool.image === '' ? this.#options.image : pool.image;
      const started = await this.#order(spec, manager, { image, isOwn: false, code: await early.code }, signal);
      return { pod, manager, key, containerId: containerIdOf(pod), started, poolId: pool.id, whyNoPool: '' };
    } catch (error) {
      const isClean = await manager?.reset(AbortSignal.timeout(RESET_MS)).then(
        () => true,
        () => false,
      );
      await claims.release(pod, { isClean: isClean ?? false }).catch((failure: unknown) => {
        this.#options.logger.warn({ pod: pod.metadata?.name, err: failure }, 'cannot release claimed pod');
      });
      throw signal.aborted ? givenUp() : error;
    }
  }

  async #startOwn(spec: SandboxSpec, whyNoPool: string, signal: AbortSignal): Promise<StartedPod> {
    const { sandboxPods, secret, logger } = this.#options;
    const fileSources = new Set<string>();
    for (;;) {
      if (signal.aborted) throw givenUp();
      let name = ownPodName(spec.instanceId);
      let uid = '';
      try {
        await secret.get();
        const made = await this.#make(spec, fileSources, signal);
        name = made.metadata?.name ?? name;
        uid = made.metadata?.uid ?? '';
        if (signal.aborted) throw givenUp();
        const pod = await this.#untilRunning(name, uid, spec, signal);
        const key = await secret.keyOf(uid);
        const manager = new PodManager({ host: addressOf(pod), port: MANAGER_PORT, key });
        await this.#untilReached(name, uid, manager, signal);
        const image = this.#imageOf(spec);
        const started = await this.#order(spec, manager, { image, isOwn: true, code: null }, signal);
        return { pod, manager, key, containerId: '', started, poolId: null, whyNoPool };
      } catch (error) {
        const cause = await this.#explain(name, uid, error, signal);
        if (uid !== '') {
          await sandboxPods.remove(name, uid).catch((failure: unknown) => {
            logger.warn({ pod: name, err: failure }, 'removal of a pod that did not start failed; retrying');
          });
        }
        if (!(error instanceof IsFile)) throw cause;
        fileSources.add(error.source);
      }
    }
  }

  async #make(spec: SandboxSpec, fileSources: ReadonlySet<string>, signal: AbortSignal): Promise<V1Pod> {
    const { cluster, pods, sandboxPods } = this.#options;
    const name = ownPodName(spec.instanceId);
    const template = podTemplate(await this.#templateOf(spec, fileSources));
    if (spec.runsOnce === true) return await makeJob(cluster, pods, name, template, signal);
    const body = { apiVersion: 'v1', kind: 'Pod', metadata: { ...template.metadata, name }, spec: template.spec };
    const path = `/api/v1/namespaces/${cluster.namespace}/pods`;
    for (let isAgain = false; ; isAgain = true) {
      try {
        // Without the signal: an aborted request could leave an unknown pod.
        const made = await cluster.request<V1Pod>('make a pod', { method: 'POST', path, body });
        pods.learn(made);
        return made;
      } catch (error) {
        if (statusOf(error) !== 409 || isAgain) throw error;
        // Instance ids are unique, so the pod is residue of an earlier start of this instance.
        const left = await cluster
          .request<V1Pod>('read a pod', { path: `${path}/${name}`, signal })
          .catch((failure: unknown) => {
            if (statusOf(failure) === 404) return undefined;
            throw failure;
          });
        if (left !== undefined) await sandboxPods.remove(name, left.metadata?.uid ?? '');
      }
    }
  }

  async #templateOf(spec: SandboxSpec, fileSources: ReadonlySet<string>): Promise<PodTemplateOptions> {
    const { installationId, secretName, nodeId, image: ours, mountPolicy, pod } = this.#options;
    const image = this.#imageOf(spec);
    const isOurs = image === ours && spec.rootfs.user === '';
    const mode = spec.command.kind === 'image' ? 'beside' : isOurs ? 'ours' : 'foreign';
    const typeOf = (source: string) => (fileSources.has(source) ? 'File' : 'Directory');
    const { volumes, volumeMounts } = await hostPathVolumes(spec.mounts, mountPolicy, typeOf);
    const targets = [...spec.mounts, ...(spec.platformMounts ?? [])].map(({ target }) => normalOf(target));
    const set = setPart(pod, targets);
    const home = spec.env.HOME ?? '';
    return {
      ...set,
      installationId,
      secretName,
      labels: { [LABEL_INSTANCE]: spec.instanceId, [LABEL_NODE]: nodeId },
      image,
      ourImage: ours,
      mode,
      resources: resourcesOf(spec),
      restartPolicy: 'Never',
      ports: spec.ports,
      volumes: [...volumes, ...set.volumes],
      volumeMounts: [...volumeMounts, ...set.volumeMounts],
      // A custom image gets no order; its variables are those of its container.
      ...(mode === 'beside' && { env: Object.entries(spec.env).map(([name, value]) => ({ name, value })) }),
      emptyDirs: [
        ...(await directoriesOf(spec.platformMounts ?? [])),
        ...(mode === 'ours' && home.startsWith('/') && home !== '/' && home !== ROOT_HOME ? [normalOf(home)] : []),
      ],
    };
  }

  #imageOf({ rootfs }: SandboxSpec): string {
    return rootfs.imageUrl === '' ? this.#options.image : rootfs.imageUrl;
  }

  /** Sends the platform's files and starts the instance. `code` is sent with the order. */
  async #order(
    spec: SandboxSpec,
    manager: PodManager,
    { image, isOwn, code }: { readonly image: string; readonly isOwn: boolean; readonly code: EarlyCode },
    signal: AbortSignal,
  ): Promise<PodStarted> {
    const order = {
      instanceId: spec.instanceId,
      command: spec.command as PodCommand,
      secret: spec.secret,
      user: spec.rootfs.user,
      env: withHome(spec, image === this.#options.image),
      ofImage: image !== this.#options.image,
      image,
      workingDir: spec.workingDir,
      maxOpenFiles: spec.maxOpenFiles,
      endsWithInstance: isOwn,
    };
    return await startWithMounts(manager, order, spec.platformMounts ?? [], code, signal);
  }

  /** Resolves with the pod when its main container runs. Fails when that cannot happen. */
  #untilRunning(name: string, uid: string, spec: SandboxSpec, signal: AbortSignal): Promise<V1Pod> {
    const { pods, cluster } = this.#options;
    const events = spec.mounts.length === 0 ? null : new MountEvents(cluster, uid);
    return new Promise<V1Pod>((resolve, reject) => {
      const check = () => {
        const pod = pods.get(name);
        if (pod === undefined || pod.metadata?.uid !== uid)
          return settle(() => reject(failedPrecondition('its pod was deleted while it started')));
        const state = stateOf(pod);
        if (pod.spec?.nodeName !== undefined) events?.start(error => settle(() => reject(error)));
        if (pod.metadata?.deletionTimestamp !== undefined)
          return settle(() => reject(failedPrecondition('its pod was deleted while it started')));
        if (state.state === 'running' && addressOf(pod) !== '') return settle(() => resolve(pod));
        if (state.state === 'ended')
          return settle(() => reject(failedPrecondition(`the pod did not start: ${describeExit(state.exit)}`)));
        if (state.state === 'starting' && state.isHopeless)
          return settle(() => reject(failedPrecondition(`the pod did not start: ${state.why}`)));
      };
      const unsubscribe = pods.subscribe(changed => {
        if (changed === name) check();
      });
      const release = onAbort(signal, () => settle(() => reject(givenUp())));
      const settle = (end: () => void) => {
        unsubscribe();
        release();
        events?.close();
        end();
      };
      check();
    });
  }

  /** Waits until the manager answers, because a container runs before its program listens. */
  async #untilReached(name: string, uid: string, manager: PodManager, signal: AbortSignal): Promise<void> {
    for (let failures = 1; ; failures++) {
      try {
        await manager.stats();
        return;
      } catch (error) {
        // The manager answers with a refusal, because there is no instance yet.
        if (error instanceof ServiceError && error.code === 'failed_precondition') return;
        if (signal.aborted) throw givenUp();
        const pod = this.#options.pods.get(name);
        const state = pod?.metadata?.uid === uid ? stateOf(pod) : undefined;
        if (state?.state !== 'running') throw error;
        await pause(backoffMs(REACH, failures), signal);
        if (signal.aborted) throw unavailable(`the pod ${name} runs, and cannot be reached: ${messageOf(error)}`);
      }
    }
  }

  /** Returns the cluster's reason for a failed start, or the error itself. */
  async #explain(name: string, uid: string, error: unknown, signal: AbortSignal): Promise<unknown> {
    if (uid === '') return signal.aborted ? givenUp() : error;
    const pod = this.#options.pods.get(name);
    const state = pod?.metadata?.uid === uid ? stateOf(pod) : undefined;
    if (signal.aborted && state?.state === 'starting' && state.why !== '') {
      return failedPrecondition(`the pod did not start in time: ${state.why}`);
    }
    if (error instanceof ServiceError && error.code === 'unavailable' && state?.state === 'ended') {
      return failedPrecondition(`the pod ended while its instance started: ${describeExit(state.exit)}`, {
        cause: error,
      });
    }
    return error;
  }
}

type EarlyCode = Awaited<ReturnType<typeof packPlatformMounts>>;

/** Work of a start that can run while the API server decides about the claim. */
class EarlyWork {
  readonly #spec: SandboxSpec;
  readonly #secret: InstallationSecret;
  #manager: PodManager | undefined;
  #code: Promise<EarlyCode> | undefined;

  constructor(spec: SandboxSpec, secret: InstallationSecret) {
    this.#spec = spec;
    this.#secret = secret;
  }

  /** Returns the code that is sent with the order; null: `put` sends it. */
  get code(): Promise<EarlyCode> {
    this.#code ??= packPlatformMounts(this.#spec.platformMounts ?? []);
    return this.#code;
  }

  /** Connects to this pod and closes connections to an earlier one. */
  connectTo(pod: V1Pod): void {
    this.forget();
    this.code.catch(() => undefined);
    this.#secret.keyOf(pod.metadata?.uid ?? '').then(
      key => {
        this.#manager = new PodManager({ host: addressOf(pod), port: MANAGER_PORT, key });
        this.#manager.prepare();
      },
      // The start itself reads the key again and reports the error.
      () => undefined,
    );
  }

  forget(): void {
    this.#manager?.forget();
  }
}

/** Returns the part of a spec that a claim needs. */
export function claimSpecOf(spec: SandboxSpec): ClaimSpec {
  return {
    instanceId: spec.instanceId,
    cpuMillis: spec.cpuMillis,
    memoryMb: spec.memoryMb,
    imageUrl: spec.rootfs.imageUrl,
    mounts: spec.mounts,
    ...(spec.pool && { pool: spec.pool }),
  };
}

/** Returns the reason why the spec cannot use a pod of any pool; null when it can. */
export function whyNotOfPool(spec: SandboxSpec): string | null {
  if (spec.runsOnce === true) return 'a job has a pod of its own';
  if (spec.command.kind === 'image') return 'the command of an image runs in a pod that is made for it';
  if (spec.rootfs.user !== '') return `pods of pools run as their own user, and ${spec.rootfs.user} was asked for`;
  const outside = (spec.platformMounts ?? []).find(({ target }) => !isWithin(normalOf(target), CODE_DIR));
  return outside === undefined ? null : `${outside.target} is not below ${CODE_DIR}, where the pods of pools take code`;
}

/** Replaces a home in `/root` with `/tmp` for the user of Rookery's image, who is not root. */
function withHome({ env, rootfs }: SandboxSpec, isOurs: boolean): SandboxSpec['env'] {
  return isOurs && rootfs.user === '' && env.HOME === ROOT_HOME ? { ...env, HOME: '/tmp' } : env;
}

function givenUp(): ServiceError {
  return deadlineExceeded('the sandbox did not start in time');
}
