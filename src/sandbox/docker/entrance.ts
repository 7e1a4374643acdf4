import { join } from 'node:path';
import { AccessConnection } from '../host/access-connection.ts';
import type { HostProgram, HostPython } from './host-python.ts';

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
export class Entrance {
  readonly #python: HostPython;
  readonly #socket: string;
  #helper: Promise<HostProgram> | undefined;

  /** `directory`: a directory that only this server may enter; the helper's socket is in it. */
  constructor(python: HostPython, directory: string) {
    this.#python = python;
    this.#socket = join(directory, SOCKET_NAME);
  }

  /** Opens a connection into a container. `AccessConnection.open` documents its errors. */
  async open(place: Place, way: 'dial' | 'files', request: object, signal: AbortSignal): Promise<AccessConnection> {
    await this.#ready();
    return await AccessConnection.open(this.#socket, [{ ...place, way }, request], signal);
  }

  async close(): Promise<void> {
    const helper = await this.#helper?.catch(() => undefined);
    helper?.letGo();
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
