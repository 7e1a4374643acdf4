import { readFile } from 'node:fs/promises';
import type { Logger } from '../../telemetry/logger.ts';
import { type Engine, statusOf } from './engine.ts';

/**
 * Ends the process group of a command that the daemon started in a container; `pid` as the daemon names it. The daemon has no request for
 * that: the server does it itself where it may, else a shell inside. Never rejects.
 */
export async function killGroup(engine: Engine, container: string, pid: number, logger: Logger): Promise<void> {
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
  try {
    const exec = await engine.request('run a command', docker =>
      docker.getContainer(container).exec({ Cmd: ['/bin/sh', '-c', `kill -9 -- -${inside}`], User: '0' }),
    );
    await engine.request('run a command', () => exec.start({ Detach: true }));
  } catch (error) {
    // The container ended meanwhile, and the command with it.
    if (statusOf(error) === 404 || statusOf(error) === 409) return;
    logger.warn({ container, err: error }, 'a command in a container cannot be ended');
  }
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
