import { existsSync, readFileSync } from 'node:fs';
import { rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { internal, messageOf, unavailable } from '../../core/error.ts';
import type { PortMapping, SandboxType } from '../../core/instance.ts';
import type { ProcessName } from '../../lib/process-name.ts';
import { isAbsent } from '../../lib/system-errors.ts';
import type { ExitResult, SandboxHandle } from '../driver.ts';
import type { ControlGroups } from './control-groups.ts';

/**
 * A process sandbox as its handle describes it, sufficient to inspect and remove it without the process that
 * made it.
 */
export interface ProcessSandbox {
  readonly instanceId: string;
  /** The sandbox's directory on the host: sockets, log, state. */
  readonly directory: string;
  /** The sandbox's init; null when the start failed before init reported itself. */
  readonly init: ProcessName | null;
  readonly groups: ControlGroups;
  /**
   * Address on the host of a sandbox with its own network.
   * Null in the host's network, with loopback only, and where the network is reachable only from inside.
   */
  readonly address: string | null;
  /** True when the sandbox has its own network with access to the outside. */
  readonly hasOwnNetwork: boolean;
  /** Ports of the host that lead into the sandbox. */
  readonly portMappings: readonly PortMapping[];
}

/** The content of `state.json`, which init writes and sends as the answer to a start. */
export interface SandboxStateFile {
  readonly pid: number;
  readonly startTime: number;
  readonly bootId: string;
  readonly groups: Readonly<Record<string, string>>;
  readonly groupVersions: Readonly<Record<string, number>>;
  /**
   * The zygote or shim that made the sandbox. The old name stays, because files of earlier versions contain
   * it.
   */
  readonly launcher: string;
  /**
   * Address on the host of a sandbox with its own network.
   * Null in the host's network, with loopback only, and where the network is reachable only from inside.
   */
  readonly address?: string | null;
  /**
   * True for a sandbox with its own network and access to the outside.
   * An older zygote omits it; then the presence of `address` decides.
   */
  readonly hasOwnNetwork?: boolean;
  /** Isolation layers that this sandbox lacks, although the zygote's other sandboxes have them. */
  readonly lacks?: readonly string[];
  /**
   * The exit. It is in `exit.json` instead if the space reserved here was too small or another process
   * recorded the end.
   */
  readonly exit?: ExitResult;
}

/** Checks whether the sandbox has its own network with access to the outside. */
export function hasOwnNetwork({
  address,
  hasOwnNetwork: told,
}: Pick<SandboxStateFile, 'address' | 'hasOwnNetwork'>): boolean {
  return told ?? typeof address === 'string';
}

const SOCKETS = 'sock';
/** Drivers whose handles have this form. */
const DRIVERS: ReadonlySet<string> = new Set<SandboxType>(['process', 'supervisor']);

export function makeHandle(
  driver: SandboxType,
  instanceId: string,
  directory: string,
  state: SandboxStateFile | null,
): SandboxHandle {
  // Programs have a separate directory for the socket, which they see inside.
  const sockets = join(directory, SOCKETS);
  return {
    version: 1,
    driver,
    instanceId,
    endpoint: { kind: 'unix', path: join(existsSync(sockets) ? sockets : directory, 'runtime.sock') },
    data: { directory, ...state },
  };
}

/** Parses a handle. Fails with `internal` when it is not from the process or supervisor driver. */
export function readHandle(handle: SandboxHandle): ProcessSandbox {
  const { directory, pid, startTime, bootId, groups, groupVersions, address, portMappings } = handle.data;
  if (handle.version !== 1 || !DRIVERS.has(handle.driver) || typeof directory !== 'string') {
    throw internal(
      `expected a handle of the process or supervisor driver, version 1; got driver ${handle.driver}, version ${handle.version}`,
    );
  }
  const known = typeof pid === 'number' && typeof startTime === 'number' && typeof bootId === 'string';
  return {
    instanceId: handle.instanceId,
    directory,
    init: known ? { pid, startTime, bootId } : null,
    groups: {
      paths: (groups ?? {}) as Record<string, string>,
      versions: (groupVersions ?? {}) as Record<string, number>,
    },
    address: typeof address === 'string' ? address : null,
    hasOwnNetwork: hasOwnNetwork(handle.data),
    portMappings: (portMappings ?? []) as readonly PortMapping[],
  };
}

/**
 * Reads the sandbox's `state.json`; null before it was written. Fails with `unavailable` when it cannot be
 * read now.
 */
export async function readState(directory: string): Promise<SandboxStateFile | null> {
  return (await readJson(join(directory, 'state.json'))) as SandboxStateFile | null;
}

/**
 * Reads the exit that the sandbox recorded; null when there is none. Fails with `unavailable` when it cannot
 * be read now.
 */
export async function readExit(directory: string): Promise<ExitResult | null> {
  const told = (await readJson(join(directory, 'exit.json'))) as ExitResult | null;
  return told ?? (await readState(directory))?.exit ?? null;
}

/** Files that a sandbox's directory has in addition to its state. */
const OWN_FILES = ['exit.json', 'exit.json.tmp', 'init.sock', 'log', 'runtime.sock', 'sock/runtime.sock'];

/**
 * Removes the files that every sandbox has in its directory, except the state, which names its control
 * groups.
 * The files are removed in parallel: one after the other takes seven times as many steps. Never rejects:
 * `Removals` removes the rest.
 */
export async function removeOwnFiles(directory: string): Promise<void> {
  // Checking first is much cheaper than a failed `unlink` in the thread pool.
  const paths = OWN_FILES.map(name => join(directory, name)).filter(path => existsSync(path));
  await Promise.allSettled(paths.map(path => unlink(path)));
  const sockets = join(directory, SOCKETS);
  if (existsSync(sockets)) await rmdir(sockets).catch(() => undefined);
}

/** Removes `state.json`, the last file: a later server finds the residue by this file. Never rejects. */
export async function removeState(directory: string): Promise<void> {
  await unlink(join(directory, 'state.json')).catch(() => undefined);
}

async function readJson(path: string): Promise<unknown> {
  // The second try is for a file that is being rewritten during the first.
  for (let tried = 0; tried < 2; tried++) {
    let text: string;
    try {
      // Most sandboxes have not ended, and checking first costs a quarter of an error.
      if (!existsSync(path)) return null;
      // Synchronous: the few hundred bytes are in memory. An asynchronous read has five steps and costs ten
      // times as much.
      text = readFileSync(path, 'utf8');
    } catch (error) {
      if (isAbsent(error)) return null;
      throw unavailable(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
    }
    try {
      return JSON.parse(text);
    } catch {
      // The content may be reserved space, or a write that a full disk cut off.
    }
  }
  return null;
}
