import { join } from 'node:path';
import { AccessConnection } from '../host/access-connection.ts';
import type { HostProgram, HostPython } from './host-python.ts';

const SOCKET_NAME = '.entrance.sock';

/** Which container, and what its processes are. */
export interface Place {
  readonly container: string;
  /** Of its init, on this machine. */
  readonly pid: number;
  readonly workingDir: string;
}

/**
 * The way into containers for a server that is root on their machine: one helper of this server (runtimes/python/rookery_zygote/entrance.py),
 * started when it is first needed, forks a child for each request. The helper ends with this server.
 */
export class Entrance {
  readonly #python: HostPython;
  readonly #socket: string;
  #helper: Promise<HostProgram> | undefined;

  /** `directory`: which only this server may enter. */
  constructor(python: HostPython, directory: string) {
    this.#python = python;
    this.#socket = join(directory, SOCKET_NAME);
  }

  /** Opens a way; `AccessConnection.open` says how it fails. */
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
