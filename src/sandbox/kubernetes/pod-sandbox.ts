import type { Duplex } from 'node:stream';
import type { V1Pod } from '@kubernetes/client-node';
import { failedPrecondition, internal } from '../../core/error.ts';
import type { OpenExec, OpenExecRequest, SandboxAccess } from '../access.ts';
import type { SandboxHandle } from '../driver.ts';
import type { OpenAccess } from '../host/access-connection.ts';
import { openExec } from '../host/access-exec.ts';
import { ProcessAccess } from '../host/access-processes.ts';
import { ANNOTATION_CLAIMED_AT, LABEL_POOL } from './labels.ts';
import { MANAGER_PORT, type PodAddress, PodManager } from './manager.ts';

/** Contents of a pod's handle. */
export interface PodSandbox {
  readonly instanceId: string;
  readonly pod: string;
  readonly uid: string;
  /** Id of the pool of a claimed pod; null: the pod was created for its instance. */
  readonly poolId: string | null;
  /** Time of the claim; 0 for a pod that was created for its instance. */
  readonly claimedAtMs: number;
  /**
   * Id of the main container when the instance started. A restarted container no longer has the instance.
   * `''`: unknown.
   */
  readonly containerId: string;
  readonly manager: PodManager;
}

/** Returns the handle of a pod. `host` is the pod's address, `''` while it has none. */
export function makeHandle(
  instanceId: string,
  pod: V1Pod,
  host: string,
  key: string,
  containerId: string,
): SandboxHandle {
  const address = { host, port: MANAGER_PORT, key };
  return {
    version: 1,
    driver: 'kubernetes',
    instanceId,
    endpoint: new PodManager(address).endpoint,
    data: {
      pod: pod.metadata?.name ?? '',
      uid: pod.metadata?.uid ?? '',
      poolId: pod.metadata?.labels?.[LABEL_POOL] ?? null,
      claimedAtMs: claimedAtMs(pod),
      containerId,
      address,
    },
  };
}

/**
 * Returns the contents of a handle. Fails with `internal` when the handle is not of this driver and version.
 */
export function readHandle(handle: SandboxHandle): PodSandbox {
  const { pod, uid, poolId, claimedAtMs: claimed, containerId, address } = handle.data as Record<string, unknown>;
  const isOurs = handle.version === 1 && handle.driver === 'kubernetes';
  if (!isOurs || typeof pod !== 'string' || typeof uid !== 'string' || typeof address !== 'object') {
    throw internal(
      `expected a handle of the kubernetes driver, version 1; got driver ${handle.driver}, version ${handle.version}`,
    );
  }
  return {
    instanceId: handle.instanceId,
    pod,
    uid,
    poolId: typeof poolId === 'string' ? poolId : null,
    claimedAtMs: Number(claimed),
    containerId: String(containerId),
    manager: new PodManager(address as PodAddress),
  };
}

/** Returns the time of the claim; 0 for a pod that was created for its instance. */
export function claimedAtMs(pod: V1Pod): number {
  const at = Date.parse(pod.metadata?.annotations?.[ANNOTATION_CLAIMED_AT] ?? '');
  return Number.isFinite(at) ? at : 0;
}

/** Gives access to a pod through its manager. */
export class PodAccess extends ProcessAccess implements SandboxAccess {
  readonly #sandbox: PodSandbox;
  readonly #hasEnded: () => boolean;

  constructor(sandbox: PodSandbox, hasEnded: () => boolean) {
    super();
    this.#sandbox = sandbox;
    this.#hasEnded = hasEnded;
  }

  protected readonly openAccess: OpenAccess = async (kind, request, signal) => {
    if (this.#hasEnded()) throw failedPrecondition(`the sandbox of ${this.#sandbox.instanceId} does not run`);
    return await this.#sandbox.manager.openAccess(kind, request, signal);
  };

  openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec> {
    return openExec(this.openAccess, request, signal);
  }

  async dial(port: number, signal: AbortSignal): Promise<Duplex> {
    return (await this.openAccess('dial', { port }, signal)).socket;
  }
}
