import type Docker from 'dockerode';
import { failedPrecondition } from '../../core/error.ts';
import type { SandboxSpec } from '../driver.ts';
import type { HostProgram, HostPython } from './host-python.ts';
import { addressOf, mayEnter } from './reach.ts';

const START_SECONDS = 'HTTP_START_SECONDS';

/**
 * The way to the program of an image: a process of this host, one per container, that speaks HTTP to it and the runtime protocol to the server
 * (runtimes/python/rookery_zygote/bridge.py). It lives as long as the container, so that a server that comes after this one finds it.
 */
export class Bridge {
  readonly #program: HostProgram;
  #isServing = false;

  private constructor(program: HostProgram) {
    this.#program = program;
  }

  /** Starts it, so that it is ready by the time that the container runs. Fails with `failed_precondition` when the host has no Python. */
  static async begin(python: HostPython): Promise<Bridge> {
    return new Bridge(await python.start('bridge', { isDetached: true }));
  }

  /** Returns when it can be connected to at `socket`. Fails with `unavailable`, or `failed_precondition` when the program cannot be reached. */
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
    this.#program.letGo();
  }

  /** Ends it unless it serves: nothing will come of its container. */
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
