import type { Duplex } from 'node:stream';
import { deadlineExceeded, failedPrecondition, type ServiceError } from '../../core/error.ts';
import { endsWithin } from '../../lib/deadline.ts';
import { outputText } from '../../lib/output-text.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { type ExecRequest, type ExecResult, sandboxEnded } from '../driver.ts';
import { inspectExit } from './container-exits.ts';
import { type Engine, FrameSplitter, statusOf } from './engine.ts';
import { killCommand, pollExitCode } from './running-command.ts';

/** Variables of the container that are hidden from commands. */
const HIDDEN_VARIABLES = ['ROOKERY_RUNTIME_SECRET', 'ROOKERY_RUNTIME_SOCKET'];
/** Message that the daemon writes in place of the output when a command cannot run. */
const CANNOT_RUN = /^OCI runtime exec failed: exec failed: .*?(?:exec: )?"([^"]*)"\)?:? ?(.*?)(?:: unknown)?\s*$/s;
/** Part of that message when the working directory cannot be entered: the directory and the reason. */
const CANNOT_ENTER = /chdir to cwd \("([^"]*)"\) set in config\.json failed: ([^:\r\n]*)/;
/** First words of the daemon's message for a command that cannot run. */
export const DAEMON_SAYS = 'OCI runtime exec failed: ';
const EXIT_CANNOT_RUN = 126;
const EXIT_NOT_FOUND = 127;

/** Runs a command in a container. `SandboxDriver.exec` defines the contract. */
export async function runCommand(
  engine: Engine,
  container: string,
  request: ExecRequest,
  signal: AbortSignal,
  logger: Logger,
): Promise<ExecResult> {
  if (signal.aborted) throw deadlineExceeded('the command was cancelled before it started');
  const { exec, stream } = await startExec(engine, container, request);
  const stdout = new Output(request.maxOutputBytes);
  const stderr = new Output(request.maxOutputBytes);
  const frames = new FrameSplitter();
  stream.on('data', (chunk: Buffer) => {
    for (const { isStderr, data } of frames.push(chunk)) (isStderr ? stderr : stdout).add(data);
  });
  const inspect = () => engine.request('inspect a command', () => exec.inspect());
  try {
    const ended = new Promise<void>(resolve => {
      stream.once('end', resolve).once('close', resolve);
    });
    if (!(await endsWithin(ended, request.timeoutMs, signal))) {
      await killCommand(engine, container, exec, logger);
      if (signal.aborted) throw deadlineExceeded('the caller cancelled the command');
      return result(-1, stdout, stderr);
    }
    const code = await pollExitCode(inspect);
    // The outputs also close early when the container or the daemon ends.
    if (code === undefined) throw await lostCommand(engine, container);
    return cannotRun(request, code, stdout) ?? result(code, stdout, stderr);
  } catch (error) {
    if (statusOf(error) === 404) throw sandboxEnded(null, error);
    throw error;
  } finally {
    stream.destroy();
  }
}

/** Returns the error for a command whose outputs have closed and whose exit code the daemon does not have. */
export async function lostCommand(engine: Engine, container: string): Promise<ServiceError> {
  const exit = await inspectExit(engine, container);
  return sandboxEnded(typeof exit === 'string' ? null : exit);
}

/** Returns the variables of a command, in addition to the container's, in the Engine's format. */
export function commandVariables(env: Readonly<Record<string, string>>): string[] {
  const all = { ...Object.fromEntries(HIDDEN_VARIABLES.map(name => [name, ''])), ...env };
  return Object.entries(all).map(([name, value]) => `${name}=${value}`);
}

/**
 * Returns the directory of a command for the Engine. A relative path starts from the container's working
 * directory.
 */
export async function commandDirectory(
  engine: Engine,
  container: string,
  asked: string,
): Promise<{ readonly WorkingDir?: string }> {
  if (asked === '') return {};
  if (asked.startsWith('/')) return { WorkingDir: asked };
  const { Config: config } = await engine.request('inspect the container', docker =>
    docker.getContainer(container).inspect(),
  );
  return { WorkingDir: `${config.WorkingDir.replace(/\/+$/, '')}/${asked}` };
}

async function startExec(engine: Engine, container: string, request: ExecRequest) {
  try {
    const directory = await commandDirectory(engine, container, request.workingDir);
    const exec = await engine.request('run a command', docker =>
      docker.getContainer(container).exec({
        Cmd: [...request.argv],
        Env: commandVariables(request.env),
        AttachStdin: request.stdin !== '',
        AttachStdout: true,
        AttachStderr: true,
        ...directory,
      }),
    );
    const stream: Duplex = await engine.request('run a command', () => exec.start({ hijack: true, stdin: true }));
    stream.on('error', () => undefined);
    if (request.stdin !== '') stream.end(request.stdin);
    return { exec, stream };
  } catch (error) {
    const status = statusOf(error);
    if (status === 404 || status === 409) throw failedPrecondition('the sandbox does not run', { cause: error });
    throw error;
  }
}

function cannotRun(request: ExecRequest, code: number, stdout: Output): ExecResult | null {
  const problem = problemOf(request.argv[0] ?? '', code, stdout.text());
  return problem === null ? null : { ...problem, stdout: '', truncated: false };
}

/** Replaces the daemon's message with a shell-like one when a program cannot run; null when it ran. */
export function problemOf(
  program: string,
  code: number,
  said: string,
): { readonly returncode: number; readonly stderr: string } | null {
  if (code !== EXIT_CANNOT_RUN && code !== EXIT_NOT_FOUND) return null;
  if (!said.startsWith(DAEMON_SAYS)) return null;
  const [, directory, cannotEnter] = CANNOT_ENTER.exec(said) ?? [];
  if (directory !== undefined) {
    return { returncode: EXIT_NOT_FOUND, stderr: `cannot run ${program} in ${directory}: ${cannotEnter}\n` };
  }
  const [, , why = said.trim()] = CANNOT_RUN.exec(said) ?? [];
  const isMissing = /not found|no such file/i.test(why);
  return { returncode: isMissing ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, stderr: `cannot run ${program}: ${why}\n` };
}

function result(returncode: number, stdout: Output, stderr: Output): ExecResult {
  const truncated = stdout.isTruncated || stderr.isTruncated;
  return { returncode, stdout: stdout.text(), stderr: stderr.text(), truncated };
}

/** First bytes of an output, up to a limit. */
class Output {
  readonly #parts: Buffer[] = [];
  readonly #maxBytes: number;
  #leftBytes: number;
  isTruncated = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#leftBytes = maxBytes;
  }

  add(data: Buffer): void {
    if (data.length > this.#leftBytes) this.isTruncated = true;
    const kept = data.subarray(0, this.#leftBytes);
    if (kept.length === 0) return;
    // Copy: a slice would keep the whole chunk in memory.
    this.#parts.push(kept.length === data.length ? data : Buffer.from(kept));
    this.#leftBytes -= kept.length;
  }

  text(): string {
    return outputText(Buffer.concat(this.#parts), this.#maxBytes);
  }
}
