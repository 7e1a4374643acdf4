import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { unavailable } from '../../core/error.ts';
import { endsWithin, within } from '../../lib/deadline.ts';
import { currentBootId } from '../../lib/process-name.ts';
import type { ExitResult, SandboxStats } from '../driver.ts';
import { hasOomKill, killGroups } from './control-groups.ts';
import { FrameSocket } from './frame-socket.ts';
import { type ProcessSandbox, readExit } from './handle.ts';
import { isAlive, killProcess, waitForEnd } from './kernel.ts';

/** Time limit for a killed sandbox to disappear. */
const KILL_TIMEOUT_MS = 10_000;
/** Time limit for init to report the end, in addition to the grace period. */
const END_MARGIN_MS = 2_000;
const STATS_TIMEOUT_MS = 5_000;

/** Name of the socket on which init listens, in the sandbox's directory. */
export const CONTROL_SOCKET = 'init.sock';

/** Opens a connection to the init of a sandbox. Fails with `unavailable`. */
export function connectInit(sandbox: ProcessSandbox): Promise<FrameSocket> {
  return FrameSocket.connect(join(sandbox.directory, CONTROL_SOCKET));
}

/** A connection that init closes when it ends. */
export interface Watch {
  readonly connection: FrameSocket;
  /** Resolves with init's report that only init itself is left; null when init ended without one. */
  readonly told: Promise<Told | null>;
  readonly ended: Promise<ExitResult>;
}

/** Init's report of how its sandbox has ended. Init is exiting. */
export interface Told {
  readonly exit: ExitResult;
  /**
   * Resolves when init closes the connection as it ends, or after 2 s. Before that init may still be alive.
   * Never rejects.
   */
  readonly closed: Promise<unknown>;
}

/**
 * Waits for the exit on a connection over which init was asked to report it.
 * If the connection ends after `closing` has aborted, `ended` fails with `unavailable` at once. The closed
 * connection then says nothing about the sandbox, and checking hundreds of them would delay the shutdown.
 */
export function watchInit(connection: FrameSocket, sandbox: ProcessSandbox, closing: AbortSignal): Watch {
  const told = hearExit(connection);
  const ended = told.then(async said => {
    if (said === null) return await findExit(sandbox, closing);
    await said.closed;
    await waitForInit(sandbox);
    return said.exit;
  });
  return { connection, told, ended };
}

async function hearExit(connection: FrameSocket): Promise<Told | null> {
  for (;;) {
    const message = await connection.nextMessage();
    if (message === null) return null;
    if (message.exit === undefined) continue;
    return { exit: message.exit as ExitResult, closed: endsWithin(connection.drain(), END_MARGIN_MS) };
  }
}

async function findExit(sandbox: ProcessSandbox, closing: AbortSignal): Promise<ExitResult> {
  if (closing.aborted) throw unavailable(`the driver is closing and does not watch ${sandbox.instanceId} any more`);
  const exit = await readExit(sandbox.directory);
  if (exit !== null) return exit;
  // Init was killed from outside or by the kernel. Its end becomes visible a moment after its connections
  // close.
  if (await waitForInit(sandbox)) return await recordKilled(sandbox);
  throw unavailable(`the init of ${sandbox.instanceId} does not report its end`);
}

/**
 * Returns the exit of a sandbox whose init could not report it. Stores the exit, so that later answers match.
 */
export async function recordKilled(sandbox: ProcessSandbox): Promise<ExitResult> {
  const said = await readExit(sandbox.directory);
  if (said !== null) return said;
  const exit: ExitResult = {
    code: null,
    signal: 'SIGKILL',
    oomKilled: await hasOomKill(sandbox.groups),
    atMs: Date.now(),
  };
  await writeFile(join(sandbox.directory, 'exit.json'), JSON.stringify(exit), { mode: 0o600 }).catch(() => undefined);
  return exit;
}

/**
 * Ends a sandbox: SIGTERM to the runtime, SIGKILL after `graceMs`. Returns when none of its processes is
 * left.
 * `watch`: the connection to use when one is open. `cause`: the recorded reason for the end. Fails with
 * `unavailable`.
 */
export async function endSandbox(
  sandbox: ProcessSandbox,
  graceMs: number,
  watch: Pick<Watch, 'connection' | 'ended'> | null,
  cause?: string,
): Promise<void> {
  const { init } = sandbox;
  if (init !== null && isAlive(init)) {
    const told = watch ?? (await newWatch(sandbox).catch(() => null));
    if (told !== null) {
      told.connection.send({ op: 'stop', graceMs, ...(cause === undefined ? {} : { cause }) });
      await endsWithin(told.ended, graceMs + END_MARGIN_MS).catch(() => undefined);
      if (watch === null) told.connection.close();
    }
    if (killProcess(init) && !(await waitForEnd(init, KILL_TIMEOUT_MS))) {
      throw unavailable(`the sandbox of ${sandbox.instanceId} does not end: process ${init.pid}`);
    }
  }
  // After a reboot, groups with these names belong to another owner.
  if (init === null || init.bootId === currentBootId()) await killGroups(sandbox.groups);
}

/**
 * Stops a sandbox with its own pid namespace over `watch`; returns when init reports that only init is left.
 * Init exits a moment later. Returns null when init has not reported in time: the sandbox must be ended by
 * other means.
 */
export async function askToEnd({ connection, told }: Watch, graceMs: number): Promise<Told | null> {
  connection.send({ op: 'stop', graceMs });
  return await within(told, graceMs + END_MARGIN_MS, 'init has not told the end in time').catch(() => null);
}

/** Asks init what its sandbox uses, over a connection that is closed afterwards. */
export async function askStats(connection: FrameSocket): Promise<SandboxStats> {
  try {
    connection.send({ op: 'stats' });
    const answer = await within(connection.nextMessage(), STATS_TIMEOUT_MS, 'the sandbox did not answer in time');
    if (answer === null) throw unavailable('the sandbox ended before it reported its usage');
    return answer as unknown as SandboxStats;
  } finally {
    connection.close();
  }
}

async function newWatch(sandbox: ProcessSandbox) {
  const connection = await connectInit(sandbox);
  return { connection, ended: connection.drain() };
}

async function waitForInit(sandbox: ProcessSandbox): Promise<boolean> {
  return sandbox.init === null || (await waitForEnd(sandbox.init, KILL_TIMEOUT_MS));
}
