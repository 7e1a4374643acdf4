import { closeSync, openSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import net from 'node:net';
import { basename, dirname, join } from 'node:path';
import { messageOf, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { FrameSocket } from '../host/frame-socket.ts';

/** How long a program that has connected may take to say which it is. */
const HELLO_TIMEOUT_MS = 5_000;

/** What a shim says of itself first. */
export interface ShimHello {
  readonly program: string;
  readonly pid: number;
  readonly supervisorPid: number;
  readonly uid: number;
  /** `3.11.7` */
  readonly python: string;
}

/** A shim that has connected. */
export interface Arrival {
  readonly hello: ShimHello;
  readonly connection: FrameSocket;
}

/** Where the shims that this server has started connect to. */
export class ControlSocket {
  readonly path: string;
  readonly #server: net.Server;
  readonly #expected = new Map<string, (arrival: Arrival) => void>();
  readonly #unnamed = new Set<net.Socket>();
  #directory: number | null = null;

  constructor(path: string) {
    this.path = path;
    this.#server = net.createServer(socket => void this.#receive(socket));
    this.#server.unref();
  }

  /** Fails with `unavailable`. */
  async listen(): Promise<void> {
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    // Through a descriptor of the directory, so that the path is short enough for any data directory.
    const directory = openSync(dirname(this.path), 'r');
    this.#directory = directory;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', error =>
        reject(unavailable(`nothing can listen at ${this.path}: ${messageOf(error)}`, { cause: error })),
      );
      this.#server.listen(`/proc/self/fd/${directory}/${basename(this.path)}`, resolve);
    });
  }

  /** The arrival of this program, whenever it is. `forget` it when nobody waits any more. */
  expect(program: string): Promise<Arrival> {
    return new Promise(resolve => this.#expected.set(program, resolve));
  }

  forget(program: string): void {
    this.#expected.delete(program);
  }

  async close(): Promise<void> {
    this.#server.close();
    for (const socket of this.#unnamed) socket.destroy();
    await rm(this.path, { force: true });
    if (this.#directory !== null) closeSync(this.#directory);
    this.#directory = null;
  }

  async #receive(socket: net.Socket): Promise<void> {
    this.#unnamed.add(socket);
    const connection = FrameSocket.of(socket);
    // Neither those that wait here nor those that are instances by now hold this process.
    connection.unref();
    try {
      const hello = await within(connection.nextMessage(), HELLO_TIMEOUT_MS, 'a program did not say which it is');
      const arrived = this.#expected.get(String(hello?.program));
      // One that an operator has started again has no instance any more.
      if (arrived === undefined) return connection.close();
      this.#expected.delete(String(hello?.program));
      arrived({ hello: hello as unknown as ShimHello, connection });
    } catch {
      connection.close();
    } finally {
      this.#unnamed.delete(socket);
    }
  }
}

/** Whether somebody listens there. */
export function isServed(path: string): Promise<boolean> {
  return FrameSocket.connect(path).then(
    connection => {
      connection.close();
      return true;
    },
    () => false,
  );
}

/** Where the shims of one server connect to: while somebody listens there, that server lives. */
export function socketOf(runDir: string, owner: string): string {
  return join(runDir, `${owner}.sock`);
}
