import { existsSync, readFileSync } from 'node:fs';
import { rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { internal, messageOf, unavailable } from '../../core/error.ts';
import type { PortMapping, SandboxType } from '../../core/instance.ts';
import type { ProcessName } from '../../lib/process-name.ts';
import { isAbsent } from '../../lib/system-errors.ts';
import type { ExitResult, SandboxHandle } from '../driver.ts';
import type { ControlGroups } from './control-groups.ts';

/** The handle of a process sandbox: enough to judge and remove it without anybody's help. */
export interface ProcessSandbox {
  readonly instanceId: string;
  /** Its directory on the host: sockets, log, state. */
  readonly directory: string;
  /** Its init; null for a start that broke off before it said so. */
  readonly init: ProcessName | null;
  readonly groups: ControlGroups;
  /** On the host, in a network of its own; null in that of the host, with loopback only, and where only the inside leads there. */
  readonly address: string | null;
  /** It reaches out of a network of its own. */
  readonly hasOwnNetwork: boolean;
  /** Ports of the host that lead into it. */
  readonly portMappings: readonly PortMapping[];
}

/** What init writes into `state.json` and answers to a start. */
export interface SandboxStateFile {
  readonly pid: number;
  readonly startTime: number;
  readonly bootId: string;
  readonly groups: Readonly<Record<string, string>>;
  readonly groupVersions: Readonly<Record<string, number>>;
  /** The zygote or shim that made it; the old name stays: it is in files of sandboxes that earlier versions started. */
  readonly launcher: string;
  /** On the host, in a network of its own; null in that of the host, with loopback only, and where only the inside leads there. */
  readonly address?: string | null;
  /** It reaches out of a network of its own; absent from a zygote of before: where there is an address. */
  readonly hasOwnNetwork?: boolean;
  /** Layers that the zygote's other sandboxes have. */
  readonly lacks?: readonly string[];
  /** How it ended; in `exit.json` where there was no room for that here, or where somebody else found it out. */
  readonly exit?: ExitResult;
}

/** Whether it reaches out of a network of its own. */
export function hasOwnNetwork({
  address,
  hasOwnNetwork: told,
}: Pick<SandboxStateFile, 'address' | 'hasOwnNetwork'>): boolean {
  return told ?? typeof address === 'string';
}

const SOCKETS = 'sock';
/** Handles of which drivers are of this kind. */
const DRIVERS: ReadonlySet<string> = new Set<SandboxType>(['process', 'supervisor']);

export function makeHandle(
  driver: SandboxType,
  instanceId: string,
  directory: string,
  state: SandboxStateFile | null,
): SandboxHandle {
  // Programs have a directory for it, which they see inside.
  const sockets = join(directory, SOCKETS);
  return {
    version: 1,
    driver,
    instanceId,
    endpoint: { kind: 'unix', path: join(existsSync(sockets) ? sockets : directory, 'runtime.sock') },
    data: { directory, ...state },
  };
}

/** Fails with `internal` when the handle is not one of ours. */
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

/** What a sandbox's directory says of it; null before it has been written. Fails with `unavailable` when it cannot be read now. */
export async function readState(directory: string): Promise<SandboxStateFile | null> {
  return (await readJson(join(directory, 'state.json'))) as SandboxStateFile | null;
}

/** How the sandbox ended as it said itself; null when it has not. Fails with `unavailable` when it cannot be read now. */
export async function readExit(directory: string): Promise<ExitResult | null> {
  const told = (await readJson(join(directory, 'exit.json'))) as ExitResult | null;
  return told ?? (await readState(directory))?.exit ?? null;
}

/** What a sandbox's directory has beside its state. */
const OWN_FILES = ['exit.json', 'exit.json.tmp', 'init.sock', 'log', 'runtime.sock', 'sock/runtime.sock'];

/**
 * Removes what each sandbox has in its directory, but for what tells its groups. All at once: walking through it takes seven times as
 * many steps one after the other. Never rejects: what is left is for `Removals`.
 */
export async function removeOwnFiles(directory: string): Promise<void> {
  // To look is much cheaper than to have another thread find out that there is nothing.
  const paths = OWN_FILES.map(name => join(directory, name)).filter(path => existsSync(path));
  await Promise.allSettled(paths.map(path => unlink(path)));
  const sockets = join(directory, SOCKETS);
  if (existsSync(sockets)) await rmdir(sockets).catch(() => undefined);
}

/** The last of them: by it a server after this one finds what is left. Never rejects. */
export async function removeState(directory: string): Promise<void> {
  await unlink(join(directory, 'state.json')).catch(() => undefined);
}

async function readJson(path: string): Promise<unknown> {
  // The second time for one that is just being written over.
  for (let tried = 0; tried < 2; tried++) {
    let text: string;
    try {
      // Most have not ended: asking first costs a quarter of an error.
      if (!existsSync(path)) return null;
      // At once: a few hundred bytes that are in memory. A read by another thread has five steps, and costs ten times as much.
      text = readFileSync(path, 'utf8');
    } catch (error) {
      if (isAbsent(error)) return null;
      throw unavailable(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
    }
    try {
      return JSON.parse(text);
    } catch {
      // Also room that was set aside, or a write that a full disk cut off.
    }
  }
  return null;
}
