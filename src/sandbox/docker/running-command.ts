import { readFile } from 'node:fs/promises';
import { poll } from '../../lib/backoff.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { type Engine, statusOf } from './engine.ts';

/** Number of polls until the daemon has started an accepted command. */
const START_TRIES = 40;
const START_STEP_MS = 25;
/** Polls for an end: the daemon closes the streams of a command shortly before it stores the exit code. */
export const END_TRIES = 20;
export const END_STEP_MS = 25;

type Exec = Awaited<ReturnType<ReturnType<Engine['docker']['getContainer']>['exec']>>;

/** Returns the exit code of a command, or undefined when the daemon does not store one in time. */
export async function pollExitCode(inspect: Exec['inspect'], tries = END_TRIES): Promise<number | undefined> {
  return await poll(tries, END_STEP_MS, async () => {
    const { Running: isRunning, ExitCode: exitCode } = await inspect();
    return isRunning || exitCode === null ? undefined : exitCode;
  });
}

/**
 * Kills a command that the daemon runs in a container, with its process group. The daemon has no request for
 * that. The server sends the signal itself if it has the right; otherwise a shell inside sends it, as the
 * same user. Never rejects.
 */
export async function killCommand(engine: Engine, container: string, exec: Exec, logger: Logger): Promise<void> {
  try {
    const found = await poll(START_TRIES, START_STEP_MS, async () => {
      const { Running: isRunning, Pid: pid } = await engine.request('inspect a command', () => exec.inspect());
      // A running command without a process is still starting.
      return isRunning && pid === 0 ? undefined : { isRunning, pid };
    });
    if (found?.isRunning) await killGroup(engine, container, found.pid, logger);
    else if (found === undefined) {
      logger.warn({ container }, 'cannot end a command in a container: command did not start');
    }
  } catch (error) {
    // The container ended meanwhile, and the command with it.
    if (statusOf(error) === 404 || statusOf(error) === 409) return;
    logger.warn({ container, err: error }, 'cannot end a command in a container');
  }
}

async function killGroup(engine: Engine, container: string, pid: number, logger: Logger): Promise<void> {
  const inside = await pidInside(container, pid);
  if (inside === null) {
    logger.warn({ container, pid }, 'cannot end a command in a container: process is not on this machine');
    return;
  }
  // The command has ended.
  if (inside === 0) return;
  try {
    process.kill(-pid, 'SIGKILL');
    return;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return;
  }
  const exec = await engine.request('run a command', docker =>
    docker.getContainer(container).exec({ Cmd: ['/bin/sh', '-c', `kill -9 -${inside}`] }),
  );
  await engine.request('run a command', () => exec.start({ Detach: true }));
}

/**
 * Returns the pid in the container's own namespace. 0: the process has ended. Null: the process is not part
 * of the container (a remote daemon).
 */
async function pidInside(container: string, pid: number): Promise<number | null> {
  try {
    const [status, groups] = await Promise.all([
      readFile(`/proc/${pid}/status`, 'utf8'),
      readFile(`/proc/${pid}/cgroup`, 'utf8'),
    ]);
    if (!groups.includes(container)) return null;
    return Number(/^NSpid:.*?(\d+)$/m.exec(status)?.[1] ?? 0);
  } catch {
    return 0;
  }
}
