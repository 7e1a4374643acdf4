import { readFile } from 'node:fs/promises';
import { poll } from '../../lib/backoff.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { type Engine, statusOf } from './engine.ts';

/** How long the daemon may take to start a command that it has taken. */
const START_TRIES = 40;
const START_STEP_MS = 25;

type Exec = Awaited<ReturnType<ReturnType<Engine['docker']['getContainer']>['exec']>>;

/**
 * Ends a command that the daemon runs in a container, with its process group. The daemon has no request for that: the server does it
 * itself where it may, else a shell inside, as the same user. Never rejects.
 */
export async function killCommand(engine: Engine, container: string, exec: Exec, logger: Logger): Promise<void> {
  try {
    const found = await poll(START_TRIES, START_STEP_MS, async () => {
      const { Running: isRunning, Pid: pid } = await engine.request('inspect a command', () => exec.inspect());
      // One that runs and has no process is just being started.
      return isRunning && pid === 0 ? undefined : { isRunning, pid };
    });
    if (found?.isRunning) await killGroup(engine, container, found.pid, logger);
    else if (found === undefined) {
      logger.warn({ container }, 'a command in a container cannot be ended: it does not start');
    }
  } catch (error) {
    // The container ended meanwhile, and the command with it.
    if (statusOf(error) === 404 || statusOf(error) === 409) return;
    logger.warn({ container, err: error }, 'a command in a container cannot be ended');
  }
}

async function killGroup(engine: Engine, container: string, pid: number, logger: Logger): Promise<void> {
  const inside = await pidInside(container, pid);
  if (inside === null) {
    logger.warn({ container, pid }, 'a command in a container cannot be ended: its process is not one of this machine');
    return;
  }
  // It has ended.
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

/** The pid in the container's own namespace; 0 when it has ended, null when it is not a process of the container (a remote daemon). */
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
