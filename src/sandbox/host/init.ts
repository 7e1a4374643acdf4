import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { unavailable } from '../../core/error.ts';
import { endsWithin } from '../../lib/deadline.ts';
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

/**
 * Waits on a connection that was asked to tell the end. Fails with `unavailable`: at once when the connection ends after `closing` has aborted,
 * since that says nothing of the sandbox, and a look at each of hundreds would take the time of who closes.
 */
export async function awaitExit(
  connection: FrameSocket,
  sandbox: ProcessSandbox,
  closing: AbortSignal,
): Promise<ExitResult> {
  for (;;) {
    const message = await connection.nextMessage();
    if (message === null) break;
    if (message.exit !== undefined) {
      // It closes the connection as it ends: who looks before that has to look again.
      await endsWithin(connection.drain(), END_MARGIN_MS);
      await waitForInit(sandbox);
      return message.exit as ExitResult;
    }
  }
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

/** A connection that init closes when it ends. */
export interface Watch {
  readonly connection: FrameSocket;
  readonly ended: Promise<unknown>;
}

/**
 * Ends a sandbox: SIGTERM to the runtime, after `graceMs` SIGKILL. Returns when nothing of it runs. `watch`: where there is one, it is asked
 * over that. `cause`: the reason that is given for its end. Fails with `unavailable`.
 */
export async function endSandbox(
  sandbox: ProcessSandbox,
  graceMs: number,
  watch: Watch | null,
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
    killProcess(init);
    if (!(await waitForEnd(init, KILL_TIMEOUT_MS))) {
      throw unavailable(`the sandbox of ${sandbox.instanceId} does not end: process ${init.pid}`);
    }
  }
  await killGroups(sandbox.groups);
}

async function newWatch(sandbox: ProcessSandbox): Promise<Watch> {
  const connection = await connectInit(sandbox);
  return { connection, ended: connection.drain() };
}

async function waitForInit(sandbox: ProcessSandbox): Promise<boolean> {
  return sandbox.init === null || (await waitForEnd(sandbox.init, KILL_TIMEOUT_MS));
}
