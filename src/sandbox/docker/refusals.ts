import { failedPrecondition, type ServiceError } from '../../core/error.ts';
import { describeExit, type ExitResult, type SandboxSpec } from '../driver.ts';
import { hasEntries, statInside } from './container-requests.ts';
import { daemonMessage, type Engine, statusOf } from './engine.ts';
import { readLogs } from './logs.ts';
import { EXIT_NO_PROGRAM } from './python.ts';

const EXIT_CANNOT_EXECUTE = 126;
const EXIT_NOT_FOUND = 127;
const SHOWN_LOG_LINES = 3;
const SHOWN_LOG_CHARS = 500;

/**
 * Converts a refusal by the daemon to an error that names the caller's mistake. Returns other errors as they
 * are.
 */
export function refusalOf(spec: SandboxSpec, error: unknown): ServiceError {
  if (statusOf(error) === null) return error as ServiceError;
  const { user, imageUrl } = spec.rootfs;
  const [name = '', group = ''] = user.split(':', 2);
  const message = daemonMessage(error);
  if (/unable to find group/.test(message)) {
    return failedPrecondition(`group ${group} does not exist in ${imageUrl}`, { cause: error });
  }
  if (/unable to find user/.test(message)) {
    return failedPrecondition(`user ${name} does not exist in ${imageUrl}`, { cause: error });
  }
  const target = /error mounting "[^"]*" to rootfs at "([^"]+)"/.exec(message)?.[1];
  if (target !== undefined) {
    return failedPrecondition(`nothing can be mounted at ${target} in ${imageUrl}: choose another target`, {
      cause: error,
    });
  }
  return failedPrecondition((error as ServiceError).message, { cause: error });
}

/** Returns a sentence why a container ended before its runtime listened. The container must still exist. */
export async function explainEnd(
  engine: Engine,
  container: string,
  spec: SandboxSpec,
  exit: ExitResult,
): Promise<string> {
  const isOfProgram =
    exit.code === EXIT_NO_PROGRAM || exit.code === EXIT_NOT_FOUND || exit.code === EXIT_CANNOT_EXECUTE;
  const problem = isOfProgram ? await programProblem(engine, container, spec, exit.code) : null;
  if (problem !== null) return problem;
  const said = await lastWords(engine, container);
  return `instance exited: ${describeExit(exit)}${said === '' ? '' : `: ${said}`}`;
}

/** Returns the problem of the command's program, or null when none is visible. */
async function programProblem(
  engine: Engine,
  container: string,
  { command, rootfs }: SandboxSpec,
  code: number | null,
): Promise<string | null> {
  if (!('argv' in command)) return null;
  const [program = ''] = command.argv;
  const { deployDir } = command;
  if (deployDir === undefined)
    return code === EXIT_NOT_FOUND ? `image ${rootfs.imageUrl} has no program ${program}` : null;
  if (!deployDir.startsWith('/')) {
    return `deploy dir is empty: codePath must be an absolute path inside the sandbox, not '${deployDir}'`;
  }
  const directory = await statInside(engine, container, deployDir);
  if (!directory?.isDirectory) {
    return `deploy dir is empty: ${deployDir} does not exist; mount the code with target ${deployDir}`;
  }
  if (!(await hasEntries(engine, container, deployDir))) return `deploy dir is empty: there is nothing in ${deployDir}`;
  const file = await statInside(engine, container, program);
  if (file === null) return `there is no program ${program}`;
  if (!file.isFile || (file.mode & 0o111) === 0) return `${program} is not an executable file`;
  if (code === EXIT_NOT_FOUND)
    return `${program} cannot be run: what it needs to run (its interpreter or a library) is not in image ${rootfs.imageUrl}`;
  const user = rootfs.user === '' ? 'root' : rootfs.user;
  return `${user} may not execute ${program}: look at its mode and at those of the directories above it`;
}

/** Returns the end of the log, which usually contains the reason. */
async function lastWords(engine: Engine, container: string): Promise<string> {
  const parts: Buffer[] = [];
  const request = { tail: SHOWN_LOG_LINES, sinceMs: null, follow: false };
  try {
    for await (const part of readLogs(engine, container, request, new AbortController().signal)) parts.push(part);
  } catch {
    return '';
  }
  return Buffer.concat(parts).toString('utf8').trim().replaceAll('\n', ' ').slice(-SHOWN_LOG_CHARS);
}
