import { closeSync, openSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import net from 'node:net';
import { basename, dirname, join } from 'node:path';
import { messageOf, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { FrameSocket } from '../host/frame-socket.ts';

/** Time limit for a connected program to send its name. */
const HELLO_TIMEOUT_MS = 5_000;

/** The first message of a shim. */
export interface ShimHello {
  readonly program: string;
  readonly pid: number;
  readonly supervisorPid: number;
  readonly uid: number;
  /** Full Python version, for example `3.11.7`. */
  readonly python: string;
}

/** A shim that has connected. */
export interface Arrival {
  readonly hello: ShimHello;
  readonly connection: FrameSocket;
}

/** The socket to which this server's shims connect. */
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

  /** Starts listening. Fails with `unavailable`. */
  async listen(): Promise<void> {
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    // The path starts at the directory's descriptor, because socket paths are limited in length.
    const directory = openSync(dirname(this.path), 'r');
    this.#directory = directory;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', error =>
        reject(unavailable(`nothing can listen at ${this.path}: ${messageOf(error)}`, { cause: error })),
      );
      this.#server.listen(`/proc/self/fd/${directory}/${basename(this.path)}`, resolve);
    });
  }

  /** Resolves when this program connects, without a time limit. Call `forget` to stop waiting. */
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
    // Neither waiting shims nor instances keep this process alive.
    connection.unref();
    try {
      const hello = await within(connection.nextMessage(), HELLO_TIMEOUT_MS, 'a program did not say which it is');
      const arrived = this.#expected.get(String(hello?.program));
      // A program that an operator restarted has no instance any more.
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

/** Checks whether a process listens at `path`. */
export function isServed(path: string): Promise<boolean> {
  return FrameSocket.connect(path).then(
    connection => {
      connection.close();
      return true;
    },
    () => false,
  );
}

/** Returns the path to which one server's shims connect. The server is alive as long as it listens there. */
export function socketOf(runDir: string, owner: string): string {
  return join(runDir, `${owner}.sock`);
}
