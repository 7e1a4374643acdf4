import type { Duplex } from 'node:stream';
import { deadlineExceeded, failedPrecondition, unavailable } from '../../core/error.ts';
import { poll } from '../../lib/backoff.ts';
import { endsWithin } from '../../lib/deadline.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { ExecRequest, ExecResult } from '../driver.ts';
import { type Engine, statusOf } from './engine.ts';
import { FrameSplitter } from './multiplex.ts';
import { killCommand } from './processes.ts';

const END_TRIES = 20;
const END_STEP_MS = 25;
/** Variables of a container that a command has no use for. */
const HIDDEN_VARIABLES = ['ROOKERY_RUNTIME_SECRET', 'ROOKERY_RUNTIME_SOCKET'];
/** The daemon's words in place of the command's output when it cannot run. */
const CANNOT_RUN = /^OCI runtime exec failed: exec failed: .*?(?:exec: )?"([^"]*)"\)?:? ?(.*?)(?:: unknown)?\s*$/s;
/** The directory that it was to run in, and why it cannot. */
const CANNOT_ENTER = /chdir to cwd \("([^"]*)"\) set in config\.json failed: ([^:\r\n]*)/;
/** The beginning of that. */
export const DAEMON_SAYS = 'OCI runtime exec failed: ';
const EXIT_CANNOT_RUN = 126;
const EXIT_NOT_FOUND = 127;

/** Runs a command in a container; `SandboxDriver.exec` says the rest. */
export async function runCommand(
  engine: Engine,
  container: string,
  request: ExecRequest,
  signal: AbortSignal,
  logger: Logger,
): Promise<ExecResult> {
  if (signal.aborted) throw deadlineExceeded('the command was given up before it began');
  const { exec, stream } = await begin(engine, container, request);
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
      if (signal.aborted) throw deadlineExceeded('the command was given up by its caller');
      return result(-1, stdout, stderr);
    }
    // The daemon ends the outputs a moment before it knows how the command ended.
    const code = await poll(END_TRIES, END_STEP_MS, async () => {
      const { Running: isRunning, ExitCode: exitCode } = await inspect();
      return isRunning || exitCode === null ? undefined : exitCode;
    });
    // Otherwise they end before the command does only when the container or the daemon goes.
    if (code === undefined) throw unavailable('the sandbox ended before the command did');
    return cannotRun(request, code, stdout) ?? result(code, stdout, stderr);
  } catch (error) {
    if (statusOf(error) === 404) throw unavailable('the sandbox ended before the command did', { cause: error });
    throw error;
  } finally {
    stream.destroy();
  }
}

/** The variables of a command beside the container's, as the daemon takes them. */
export function commandVariables(env: Readonly<Record<string, string>>): string[] {
  const all = { ...Object.fromEntries(HIDDEN_VARIABLES.map(name => [name, ''])), ...env };
  return Object.entries(all).map(([name, value]) => `${name}=${value}`);
}

/** The directory of a command as the daemon takes it: a relative one counts from that of the container. */
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

async function begin(engine: Engine, container: string, request: ExecRequest) {
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

/** The shell's words for a program that is not there, in place of the daemon's; null when it ran. */
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

/** The beginning of an output, up to a bound. */
class Output {
  readonly #parts: Buffer[] = [];
  #leftBytes: number;
  isTruncated = false;

  constructor(maxBytes: number) {
    this.#leftBytes = maxBytes;
  }

  add(data: Buffer): void {
    if (data.length > this.#leftBytes) this.isTruncated = true;
    const kept = data.subarray(0, this.#leftBytes);
    if (kept.length === 0) return;
    // A copy: a slice would hold the whole chunk that it came in.
    this.#parts.push(kept.length === data.length ? data : Buffer.from(kept));
    this.#leftBytes -= kept.length;
  }

  text(): string {
    return Buffer.concat(this.#parts).toString('utf8');
  }
}
