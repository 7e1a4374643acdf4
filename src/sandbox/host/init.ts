import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { unavailable } from '../../core/error.ts';
import { endsWithin, within } from '../../lib/deadline.ts';
import { currentBootId } from '../../lib/process-name.ts';
import type { ExitResult } from '../driver.ts';
import { hasOomKill, killGroups } from './control-groups.ts';
import { FrameSocket } from './frame-socket.ts';
import { type ProcessSandbox, readExit } from './handle.ts';
import { isAlive, killProcess, waitForEnd } from './kernel.ts';

/** How long a sandbox that was killed may take to be gone. */
const KILL_TIMEOUT_MS = 10_000;
/** How long init may take to report the end, beyond the grace that it was given. */
const END_MARGIN_MS = 2_000;

/** Where init listens, in the sandbox's directory. */
export const CONTROL_SOCKET = 'init.sock';

/** Opens a connection to the init of a sandbox. Fails with `unavailable`. */
export function connectInit(sandbox: ProcessSandbox): Promise<FrameSocket> {
  return FrameSocket.connect(join(sandbox.directory, CONTROL_SOCKET));
}

/** A connection that init closes when it ends. */
export interface Watch {
  readonly connection: FrameSocket;
  /** What init says when all has ended but itself; null: it has ended without a word. */
  readonly told: Promise<Told | null>;
  readonly ended: Promise<ExitResult>;
}

/** Init has said how its sandbox has ended, and is on its way out. */
export interface Told {
  readonly exit: ExitResult;
  /** It closes the connection as it ends: who looks before that has to look again. Never rejects. */
  readonly closed: Promise<unknown>;
}

/**
 * Waits on a connection that was asked to tell the end. `ended` fails with `unavailable`: at once when the connection ends after `closing` has
 * aborted, since that says nothing of the sandbox, and a look at each of hundreds would take the time of who closes.
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
  if (closing.aborted) throw unavailable(`nobody watches ${sandbox.instanceId} any more`);
  const exit = await readExit(sandbox.directory);
  if (exit !== null) return exit;
  // Killed from outside, or by the kernel: it is seen ending a moment after its connections.
  if (await waitForInit(sandbox)) return await recordKilled(sandbox);
  throw unavailable(`the init of ${sandbox.instanceId} does not tell when it ends`);
}

/** How a sandbox ended whose init could not say it; kept, so that the next answer is the same. */
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
 * Ends a sandbox: SIGTERM to the runtime, after `graceMs` SIGKILL. Returns when nothing of it runs. `watch`: where there is one, it is asked
 * over that. `cause`: the reason that is given for its end. Fails with `unavailable`.
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
  // What runs in groups of those names since the machine began anew is somebody else's.
  if (init === null || init.bootId === currentBootId()) await killGroups(sandbox.groups);
}

/**
 * The same over `watch`, for a sandbox with a pid namespace of its own: returns as soon as init has said that nothing but itself is left of it, which
 * is a moment before it is gone. Null: it has not said so in time, and has to be ended.
 */
export async function askToEnd({ connection, told }: Watch, graceMs: number): Promise<Told | null> {
  connection.send({ op: 'stop', graceMs });
  return await within(told, graceMs + END_MARGIN_MS, 'init has not told the end in time').catch(() => null);
}

async function newWatch(sandbox: ProcessSandbox) {
  const connection = await connectInit(sandbox);
  return { connection, ended: connection.drain() };
}

async function waitForInit(sandbox: ProcessSandbox): Promise<boolean> {
  return sandbox.init === null || (await waitForEnd(sandbox.init, KILL_TIMEOUT_MS));
}
