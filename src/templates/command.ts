import type { ProcessEnd, SandboxAccess, StartProcess } from '../sandbox/access.ts';

/** A command of a template, which runs with `/bin/bash -l -c`. */
export interface TemplateCommand {
  readonly script: string;
  /** Arguments of the script: `$1`, `$2`, … */
  readonly args?: readonly string[];
  readonly user: string;
  readonly workingDir: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Receives output in order. The process waits for it. */
export type CommandOutput = (kind: 'stdout' | 'stderr', data: Buffer) => Promise<void> | void;

/** Returns the request that starts a command. `timeLimitMs` 0: no limit. */
export function processOf(
  { script, args = [], user, workingDir, env }: TemplateCommand,
  timeLimitMs: number,
): StartProcess {
  const argv = ['/bin/bash', '-l', '-c', script, 'bash', ...args];
  return { argv, user, workingDir, env, timeLimitMs, terminal: null, stdin: false };
}

/** Runs a command to its end. When `signal` aborts, kills it and rejects with the signal's reason. */
export async function runCommand(
  access: SandboxAccess,
  command: TemplateCommand,
  signal: AbortSignal,
  output: CommandOutput = () => undefined,
): Promise<ProcessEnd> {
  signal.throwIfAborted();
  const process = await access.startProcess(processOf(command, 0), signal);
  process.ended.catch(() => undefined);
  const stop = () => process.close();
  signal.addEventListener('abort', stop, { once: true });
  try {
    for await (const { kind, data } of process.output) await output(kind === 'stderr' ? 'stderr' : 'stdout', data);
    return await process.ended;
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener('abort', stop);
    process.close();
    if (signal.aborted) await kill(access, process.pid);
  }
}

/** Describes how a command ended, for messages. */
export function describeEnd({ code, signal }: ProcessEnd): string {
  return code === null ? `was killed by ${signal}` : `exited with status ${code}`;
}

const KILL_MS = 5000;

async function kill(access: SandboxAccess, pid: number): Promise<void> {
  await access.signalProcess(pid, 'SIGKILL', AbortSignal.timeout(KILL_MS)).catch(() => undefined);
}
