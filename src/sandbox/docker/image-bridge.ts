import type Docker from 'dockerode';
import { failedPrecondition } from '../../core/error.ts';
import type { SandboxSpec } from '../driver.ts';
import { addressOf, mayEnter } from './container-entry.ts';
import type { HostProgram, HostPython } from './host-python.ts';

const START_SECONDS = 'HTTP_START_SECONDS';

/**
 * Connects the server with the program of an image. A process on this host, one per container, speaks HTTP to
 * the program and the runtime protocol to the server (runtimes/python/rookery_zygote/bridge.py). The process
 * runs as long as the container, so that the next server can adopt it.
 */
export class Bridge {
  readonly #program: HostProgram;
  #isServing = false;

  private constructor(program: HostProgram) {
    this.#program = program;
  }

  /**
   * Starts the bridge process early, so that it is ready when the container runs. Fails with
   * `failed_precondition` when the host has no Python.
   */
  static async start(python: HostPython): Promise<Bridge> {
    return new Bridge(await python.start('bridge', { isDetached: true }));
  }

  /**
   * Resolves when the bridge accepts connections at `socket`. Fails with `unavailable`, or with
   * `failed_precondition` when the bridge cannot reach the program.
   */
  async serve(
    spec: SandboxSpec,
    inspected: Docker.ContainerInspectInfo,
    socket: string,
    signal: AbortSignal,
  ): Promise<void> {
    const address = mayEnter() ? null : reachableAddress(inspected);
    await this.#program.order(
      {
        instanceId: spec.instanceId,
        socket,
        secret: spec.secret,
        pid: inspected.State.Pid,
        container: inspected.Id,
        address,
        startSeconds: spec.env[START_SECONDS] ?? null,
      },
      signal,
    );
    this.#isServing = true;
    this.#program.release();
  }

  /** Kills the bridge process unless it serves: a failed start has no use for it. */
  close(): void {
    if (!this.#isServing) this.#program.kill();
  }
}

function reachableAddress(inspected: Docker.ContainerInspectInfo): string {
  const address = addressOf(inspected);
  if (address !== null) return address;
  throw failedPrecondition(
    'this server may not enter the network of a container (it does not run as root), and a container without a network has no address',
  );
}
