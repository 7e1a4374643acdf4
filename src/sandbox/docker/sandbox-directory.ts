import { chmod, chown, link, lstat, mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition, internal } from '../../core/error.ts';
import type { Removals } from '../../lib/removals.ts';
import { type DirectoryWatch, watchDirectory } from '../../lib/watch-directory.ts';
import type { SandboxHandle } from '../driver.ts';

/** Contents of a container's handle. */
export interface DockerSandbox {
  readonly instanceId: string;
  /** Id of the container; `''` when only its directory is left. */
  readonly container: string;
  readonly directory: string;
  /** True for a container with accounts. */
  readonly hasAccounts: boolean;
}

/** Returns the handle of a container. `dockerDir` contains the directories of all sandboxes. */
export function makeHandle(
  dockerDir: string,
  instanceId: string,
  container: string,
  hasAccounts = false,
): SandboxHandle {
  const directory = sandboxDirectory(dockerDir, instanceId);
  return {
    version: 1,
    driver: 'docker',
    instanceId,
    endpoint: { kind: 'unix', path: socketPath(directory) },
    data: { container, directory, ...(hasAccounts && { hasAccounts }) },
  };
}

/**
 * Returns the contents of a handle. Fails with `internal` when the handle is not of this driver and version.
 */
export function readHandle(handle: SandboxHandle): DockerSandbox {
  const { container, directory, hasAccounts } = handle.data;
  const isOurs = handle.version === 1 && handle.driver === 'docker';
  if (!isOurs || typeof container !== 'string' || typeof directory !== 'string') {
    throw internal(
      `expected a handle of the docker driver, version 1; got driver ${handle.driver}, version ${handle.version}`,
    );
  }
  return { instanceId: handle.instanceId, container, directory, hasAccounts: hasAccounts === true };
}

/** Path in a container of the directory that the container shares with the server. */
export const INSIDE_DIRECTORY = '/run/rookery';
const SOCKET_NAME = 'runtime.sock';
/** Path of the runtime's socket in a container. */
export const INSIDE_SOCKET = `${INSIDE_DIRECTORY}/${SOCKET_NAME}`;
const CONTROL_NAME = 'control.sock';
/** Path in a container with accounts of the socket for accesses. */
export const INSIDE_CONTROL = `${INSIDE_DIRECTORY}/${CONTROL_NAME}`;
const ORDERS_NAME = 'orders.json';
/** Uid that is larger than any uid of a container's user. */
const NOBODYS_UID = 2 ** 31;
/** Path of the file with the starter's orders. The starter of the Python runtime reads and removes it. */
export const INSIDE_ORDERS = `${INSIDE_DIRECTORY}/${ORDERS_NAME}`;

/** Returns the host directory of a sandbox. Only the server may enter the directory above it. */
export function sandboxDirectory(dockerDir: string, instanceId: string): string {
  return join(dockerDir, instanceId);
}

/**
 * Returns the path at which the server connects to the runtime. A root server uses a name that the container
 * cannot change. Other servers may not link to a file of another user, so they use the name inside.
 * `connectUnix` connects only to a socket there, and only if its peer is in this container.
 */
export function socketPath(directory: string): string {
  return outsidePath(directory, SOCKET_NAME);
}

/** Returns the path at which the server connects for accesses to a container with accounts. */
export function controlPath(directory: string): string {
  return outsidePath(directory, CONTROL_NAME);
}

function outsidePath(directory: string, name: string): string {
  return process.getuid?.() === 0 ? join(directory, name) : join(sharedPath(directory), name);
}

/** Returns the directory that is mounted into the container. */
export function sharedPath(directory: string): string {
  return join(directory, 'shared');
}

/**
 * Creates the directory and removes residue of an earlier start of the same instance. `orders` are for the
 * starter of the Python runtime, or for the first process of a container with accounts.
 */
export async function makeDirectory(directory: string, orders: object | null, removals: Removals): Promise<void> {
  await removals.remove(directory);
  const shared = sharedPath(directory);
  await mkdir(shared, { recursive: true, mode: 0o700 });
  // No user of a container can have this uid, so no program inside can undo the mode that `claim` sets.
  if (process.getuid?.() === 0) await chown(shared, NOBODYS_UID, NOBODYS_UID);
  // The user inside is not known yet. On the host the directory above keeps other users out.
  await chmod(shared, 0o777);
  if (orders !== null) await writeFile(join(shared, ORDERS_NAME), JSON.stringify(orders), { mode: 0o644 });
}

/** Waits for the socket of a runtime. Create the watch before the container starts. */
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

  /** Resolves when the socket exists. The watch runs until `close`. */
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
   * Moves the socket to a name that programs inside cannot replace, and makes the shared directory read-only.
   * The directory is on a disk of the host. Fails with `failed_precondition` when the path is not a socket.
   */
  async claim(): Promise<void> {
    await chmod(this.#shared, 0o555);
    await this.#claim(SOCKET_NAME);
  }

  /** Claims the socket for accesses too, which exists before the runtime's. */
  async claimControl(): Promise<void> {
    await this.#claim(CONTROL_NAME);
  }

  async #claim(socketName: string): Promise<void> {
    const inside = join(this.#shared, socketName);
    const name = outsidePath(this.#directory, socketName);
    if (name === inside) {
      await assertSocket(inside, socketName);
      return;
    }
    const claimed = `${name}.new`;
    await link(inside, claimed);
    await assertSocket(claimed, socketName);
    await rename(claimed, name);
  }

  close(): void {
    this.#watcher.close();
    this.#seen?.();
  }
}

/** `name` names the file in the error, as the program sees it. */
async function assertSocket(path: string, name: string): Promise<void> {
  if ((await lstat(path)).isSocket()) return;
  throw failedPrecondition(`${INSIDE_DIRECTORY}/${name} is not a socket: the program has put something else there`);
}

async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch {
    return false;
  }
}
