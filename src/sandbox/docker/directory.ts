import { chmod, chown, link, lstat, mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition } from '../../core/error.ts';
import type { Removals } from '../../lib/removals.ts';
import { type DirectoryWatch, watchDirectory } from '../../lib/watch-directory.ts';

/** Where a container sees the directory that it shares with the server. */
export const INSIDE_DIRECTORY = '/run/rookery';
const SOCKET_NAME = 'runtime.sock';
/** The socket as the container's programs know it. */
export const INSIDE_SOCKET = `${INSIDE_DIRECTORY}/${SOCKET_NAME}`;
const ORDERS_NAME = 'orders.json';
/** Larger than any uid that a container may be given. */
const NOBODYS_UID = 2 ** 31;
/** A file that the starter of the Python runtime reads and removes. */
export const INSIDE_ORDERS = `${INSIDE_DIRECTORY}/${ORDERS_NAME}`;

/** The directory of a sandbox on the host; only the server may enter the one above it. */
export function sandboxDirectory(dockerDir: string, instanceId: string): string {
  return join(dockerDir, instanceId);
}

/**
 * Where the server connects to the runtime: outside of what the container can change. A server that is not root may not link to what
 * belongs to another user and has to use the name inside; `connectUnix` connects to nothing but a socket there, whose other end has to be in
 * this container.
 */
export function socketPath(directory: string): string {
  return process.getuid?.() === 0 ? join(directory, SOCKET_NAME) : join(sharedPath(directory), SOCKET_NAME);
}

/** The directory that is mounted into the container. */
export function sharedPath(directory: string): string {
  return join(directory, 'shared');
}

/** Makes it, over what an earlier start of the same instance left. `orders` go to the starter of the Python runtime. */
export async function makeDirectory(directory: string, orders: object | null, removals: Removals): Promise<void> {
  await removals.remove(directory);
  const shared = sharedPath(directory);
  await mkdir(shared, { recursive: true, mode: 0o700 });
  // No user of a container can have this uid, so none can change the mode that `claim` gives it.
  if (process.getuid?.() === 0) await chown(shared, NOBODYS_UID, NOBODYS_UID);
  // The user inside is not known yet; on the host nobody gets as far as this.
  await chmod(shared, 0o777);
  if (orders !== null) await writeFile(join(shared, ORDERS_NAME), JSON.stringify(orders), { mode: 0o644 });
}

/** Waits for the socket of a runtime. Make it before the container starts. */
export class SocketWatch {
  readonly #shared: string;
  readonly #directory: string;
  readonly #watcher: DirectoryWatch;
  #seen: (() => void) | undefined;

  constructor(directory: string) {
    this.#directory = directory;
    this.#shared = sharedPath(directory);
    this.#watcher = watchDirectory(this.#shared, () => this.#seen?.());
  }

  /** Resolves when the socket is there. Goes on until `close`. */
  async ready(): Promise<void> {
    const socket = join(this.#shared, SOCKET_NAME);
    for (;;) {
      const changed = new Promise<void>(resolve => {
        this.#seen = resolve;
      });
      if (await isThere(socket)) return;
      await changed;
    }
  }

  /**
   * Gives the socket a name that nobody inside can put anything else in the place of, and ends the writing to the shared directory, which
   * is on a disk of the host. Fails with `failed_precondition` when what is there is no socket.
   */
  async claim(): Promise<void> {
    const inside = join(this.#shared, SOCKET_NAME);
    const name = socketPath(this.#directory);
    await chmod(this.#shared, 0o555);
    if (name === inside) {
      await assertSocket(inside);
      return;
    }
    const claimed = `${name}.new`;
    await link(inside, claimed);
    await assertSocket(claimed);
    await rename(claimed, name);
  }

  close(): void {
    this.#watcher.close();
    this.#seen?.();
  }
}

async function assertSocket(path: string): Promise<void> {
  if (!(await lstat(path)).isSocket()) {
    throw failedPrecondition(`${INSIDE_SOCKET} is not a socket: the program has put something else there`);
  }
}

async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch {
    return false;
  }
}
