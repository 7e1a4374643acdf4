import { join } from 'node:path';
import type Docker from 'dockerode';
import { resourceExhausted, unavailable } from '../../core/error.ts';
import { AccessConnection } from '../host/access-connection.ts';
import type { HostProgram, HostPython } from './host-python.ts';
import { INSIDE_DIRECTORY } from './sandbox-directory.ts';

/** Returns true if this server may enter the namespaces of a container. */
export function mayEnter(): boolean {
  return process.platform === 'linux' && process.getuid?.() === 0;
}

/** Returns the container's address in its network, or null when it has none. */
export function addressOf({ NetworkSettings: settings }: Docker.ContainerInspectInfo): string | null {
  return Object.values(settings.Networks ?? {}).find(({ IPAddress: address }) => address !== '')?.IPAddress ?? null;
}

const SOCKET_NAME = '.entrance.sock';

/** Container to enter, with its init process. */
export interface Place {
  readonly container: string;
  /** Pid of the container's init on this machine. */
  readonly pid: number;
  readonly workingDir: string;
}

/**
 * Enters containers for a server that is root on their machine. One helper process forks a child for each
 * request (runtimes/python/rookery_zygote/entrance.py). The first request starts the helper, which ends with
 * this server.
 */
export class ContainerEntry {
  readonly #python: HostPython;
  readonly #socket: string;
  #helper: Promise<HostProgram> | undefined;

  /** `directory`: a directory that only this server may enter; the helper's socket is in it. */
  constructor(python: HostPython, directory: string) {
    this.#python = python;
    this.#socket = join(directory, SOCKET_NAME);
  }

  /** Opens a connection into a container. `AccessConnection.open` documents its errors. */
  async open(place: Place, kind: EntryKind, request: object, signal: AbortSignal): Promise<AccessConnection> {
    await this.#ready();
    return await AccessConnection.open(this.#socket, [{ ...place, way: kind }, request], signal);
  }

  /**
   * Makes the directory that a container with accounts shares with this server read-only inside. Call before
   * any code runs there. Fails with `unavailable`.
   */
  async seal(place: Place, signal: AbortSignal): Promise<void> {
    await this.#ready();
    const request = { path: INSIDE_DIRECTORY };
    const { socket } = await AccessConnection.open(this.#socket, [{ ...place, way: 'seal' }, request], signal);
    socket.destroy();
  }

  async close(): Promise<void> {
    const helper = await this.#helper?.catch(() => undefined);
    helper?.release();
    await helper?.ended;
  }

  #ready(): Promise<HostProgram> {
    if (this.#helper === undefined) {
      const starting = this.#start();
      const forget = () => {
        if (this.#helper === starting) this.#helper = undefined;
      };
      this.#helper = starting;
      starting.then(helper => helper.ended.then(forget), forget);
    }
    return this.#helper;
  }

  async #start(): Promise<HostProgram> {
    const helper = await this.#python.start('entrance', { isDetached: false });
    try {
      await helper.order({ socket: this.#socket });
      return helper;
    } catch (error) {
      helper.kill();
      throw error;
    }
  }
}

/** Limits on open connections per container; sandboxes with Rookery's own init have the same limits. */
const MOST = { dial: 256, files: 64, account: 64, watch: 64 } as const;
const WHAT = {
  dial: 'connections to ports',
  files: 'files and directories',
  account: 'files and directories',
  watch: 'watched directories',
} as const;

type EntryKind = keyof typeof MOST;

interface Open {
  readonly counts: Record<EntryKind, number>;
  readonly connections: Set<AccessConnection>;
  hasEnded: boolean;
}

/**
 * Counts and ends the connections into containers that the helper of `ContainerEntry` serves. The serving
 * process is not part of the container. So the kernel neither ends it with the container nor counts it
 * against the container's limits.
 */
export class OpenAccesses {
  readonly #wait: (container: string) => Promise<unknown>;
  /** Container → connections, from its first connection until its end. */
  readonly #containers = new Map<string, Open>();

  /** `wait` settles when the container has ended. */
  constructor(wait: (container: string) => Promise<unknown>) {
    this.#wait = wait;
  }

  /**
   * Opens a connection and destroys it when the container ends. Fails with `resource_exhausted` when the
   * container has too many.
   */
  async add(container: string, kind: EntryKind, open: () => Promise<AccessConnection>): Promise<AccessConnection> {
    const of = this.#of(container);
    const most = MOST[kind];
    if (of.counts[kind] >= most) {
      throw resourceExhausted(`too many ${WHAT[kind]} are open in this sandbox (${most})`);
    }
    of.counts[kind] += 1;
    const leave = () => {
      of.counts[kind] -= 1;
    };
    let connection: AccessConnection;
    try {
      connection = await open();
    } catch (error) {
      leave();
      throw error;
    }
    const { socket } = connection;
    of.connections.add(connection);
    const close = () => {
      of.connections.delete(connection);
      leave();
    };
    if (socket.closed) close();
    else socket.once('close', close);
    // The container ended while the connection was opening.
    if (of.hasEnded) end(connection);
    return connection;
  }

  #of(container: string): Open {
    const known = this.#containers.get(container);
    if (known !== undefined) return known;
    const made: Open = { counts: { dial: 0, files: 0, account: 0, watch: 0 }, connections: new Set(), hasEnded: false };
    this.#containers.set(container, made);
    const forget = () => {
      if (this.#containers.get(container) === made) this.#containers.delete(container);
    };
    const hasEnded = () => {
      forget();
      made.hasEnded = true;
      for (const connection of made.connections) end(connection);
    };
    // If the daemon cannot report the end, the next connection waits again.
    this.#wait(container).then(hasEnded, forget);
    return made;
  }
}

function end(connection: AccessConnection): void {
  connection.socket.destroy(unavailable('the sandbox ended'));
}
