import { type Duplex, Readable, Writable } from 'node:stream';
import { deadlineExceeded, failedPrecondition } from '../../core/error.ts';
import { poll } from '../../lib/backoff.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { OpenExec, OpenExecRequest, TerminalSize } from '../access.ts';
import { inspectExit } from './container-exits.ts';
import { type Engine, FrameSplitter, statusOf } from './engine.ts';
import { commandDirectory, commandVariables, DAEMON_SAYS, lostCommand, problemOf } from './exec.ts';
import { END_STEP_MS, END_TRIES, killCommand, pollExitCode } from './running-command.ts';

const RESIZE_TRIES = 40;

const EXIT_KILLED = 137;
/** Limit on output held back for a check. Messages of the daemon are shorter. */
const MAX_HELD_BYTES = 8 * 1024;

type Exec = Awaited<ReturnType<ReturnType<Engine['docker']['getContainer']>['exec']>>;

interface CommandParts {
  readonly engine: Engine;
  readonly container: string;
  readonly exec: Exec;
  readonly stream: Duplex;
  readonly program: string;
  readonly hasTerminal: boolean;
  readonly logger: Logger;
}

/** Starts a command in a container and opens its streams. `SandboxAccess.openExec` defines the contract. */
export async function openCommand(
  engine: Engine,
  container: string,
  request: OpenExecRequest,
  signal: AbortSignal,
  logger: Logger,
): Promise<OpenExec> {
  if (signal.aborted) throw deadlineExceeded('the command was cancelled before it started');
  const { exec, stream } = await startExec(engine, container, request);
  const program = request.argv[0] ?? '';
  const hasTerminal = request.terminal !== null;
  const command = new OpenCommand({ engine, container, exec, stream, program, hasTerminal, logger });
  const letGo = onAbort(signal, () => command.cancel());
  command.ended.catch(() => undefined).finally(letGo);
  if (signal.aborted) throw deadlineExceeded('the command was cancelled before it started');
  // Only newer daemons accept the size at creation, so set it after the start.
  if (request.terminal !== null) command.resize(request.terminal);
  return command;
}

async function startExec(
  engine: Engine,
  container: string,
  { argv, workingDir, env, terminal }: OpenExecRequest,
): Promise<{ exec: Exec; stream: Duplex }> {
  const hasTerminal = terminal !== null;
  try {
    const directory = await commandDirectory(engine, container, workingDir);
    const exec = await engine.request('run a command', docker =>
      docker.getContainer(container).exec({
        Cmd: [...argv],
        Env: commandVariables(hasTerminal ? { TERM: 'xterm-256color', ...env } : env),
        AttachStdin: true,
        AttachStdout: true,
        AttachStderr: true,
        Tty: hasTerminal,
        ...directory,
      }),
    );
    const start = { hijack: true, stdin: true, Tty: hasTerminal };
    const stream: Duplex = await engine.request('run a command', () => exec.start(start));
    return { exec, stream };
  } catch (error) {
    const status = statusOf(error);
    if (status === 404 || status === 409) throw failedPrecondition('the sandbox does not run', { cause: error });
    throw error;
  }
}

/**
 * Runs one command over one connection to the daemon. Both outputs share that connection, so an unread output
 * also blocks the other.
 */
class OpenCommand implements OpenExec {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly ended: Promise<number>;
  readonly #parts: CommandParts;
  readonly #splitter = new FrameSplitter();
  /** First bytes of the output, kept until they turn out not to be an error message of the daemon. */
  #held: Buffer | null = Buffer.alloc(0);
  #isOver = false;
  #killing: Promise<void> | null = null;
  #resized: Promise<void> = Promise.resolve();
  #fail: (error: Error) => void = () => undefined;

  constructor(parts: CommandParts) {
    this.#parts = parts;
    const { stream, hasTerminal } = parts;
    const isFull = (output: Readable) => output.readableLength >= output.readableHighWaterMark;
    // Node calls `read` before it subtracts the chunk that it delivers, so only the other output is checked.
    const resumeUnlessFull = (other: () => Readable) => () => {
      if (!isFull(other())) stream.resume();
    };
    this.stdout = new Readable({ read: resumeUnlessFull(() => this.stderr) });
    this.stderr = new Readable({ read: resumeUnlessFull(() => this.stdout) });
    // If the command closes its input, later writes succeed and are discarded.
    const write = (chunk: Buffer, _encoding: unknown, done: () => void) => {
      if (this.#isOver || !stream.writable) done();
      else stream.write(chunk, () => done());
    };
    const final = (done: () => void) => {
      if (!hasTerminal && stream.writable) stream.end();
      done();
    };
    this.stdin = new Writable({ write, final });
    for (const each of [this.stdin, this.stdout, this.stderr]) each.on('error', () => undefined);
    if (hasTerminal) this.stderr.push(null);
    this.ended = new Promise((resolve, reject) => {
      const settle = <T>(end: (value: T) => void) => {
        return (value: T) => {
          if (this.#isOver) return;
          this.#isOver = true;
          stream.destroy();
          end(value);
        };
      };
      const succeed = settle<number>(code => {
        this.stdout.push(null);
        if (!hasTerminal) this.stderr.push(null);
        resolve(code);
      });
      this.#fail = settle<Error>(error => {
        for (const each of [this.stdin, this.stdout, this.stderr]) each.destroy(error);
        reject(error);
      });
      stream.on('data', (chunk: Buffer) => this.#receive(chunk));
      stream.on('error', () => undefined);
      // If the stream ends while the command runs, the container or the daemon ended it.
      stream.once('close', () => this.#readCode(!stream.readableEnded).then(succeed, this.#fail));
      stream.once('end', () => stream.destroy());
    });
    this.ended.catch(() => undefined);
  }

  resize({ columns, rows }: TerminalSize): void {
    if (!this.#parts.hasTerminal || this.#isOver) return;
    // Run resizes in order, so that the last size applies.
    this.#resized = this.#resized.then(() => this.#resize(columns, rows));
  }

  /** Retries while the daemon is still starting the command. */
  async #resize(columns: number, rows: number): Promise<void> {
    const { engine, exec, container, logger } = this.#parts;
    let failure: unknown;
    const resized = await poll(RESIZE_TRIES, END_STEP_MS, async () => {
      if (this.#isOver) return true;
      try {
        await engine.request('resize a terminal', () => exec.resize({ w: columns, h: rows }));
        return true;
      } catch (error) {
        failure = error;
        return undefined;
      }
    });
    if (resized === undefined) logger.debug({ container, err: failure }, 'terminal resize failed');
  }

  kill(): void {
    const { engine, container, exec, logger } = this.#parts;
    if (!this.#isOver) this.#killing ??= killCommand(engine, container, exec, logger);
  }

  /** Kills the command and fails its streams, because its caller no longer waits. */
  cancel(): void {
    this.kill();
    this.#fail(deadlineExceeded('the caller cancelled the command'));
  }

  #receive(chunk: Buffer): void {
    const { stream, hasTerminal } = this.#parts;
    const frames = hasTerminal ? [{ isStderr: false, data: chunk }] : this.#splitter.push(chunk);
    for (const { isStderr, data } of frames) {
      if (isStderr ? !this.stderr.push(data) : !this.#pushOutput(data)) stream.pause();
    }
  }

  /** Returns false when the reader's buffer is full. */
  #pushOutput(data: Buffer): boolean {
    if (this.#held === null) return this.stdout.push(data);
    const held = Buffer.concat([this.#held, data]);
    const isDaemon = DAEMON_SAYS.startsWith(held.toString('latin1', 0, DAEMON_SAYS.length));
    if (isDaemon && held.length < MAX_HELD_BYTES) {
      this.#held = held;
      return true;
    }
    this.#held = null;
    return this.stdout.push(held);
  }

  #inspect() {
    return this.#parts.engine.request('inspect a command', () => this.#parts.exec.inspect());
  }

  async #readCode(isCut: boolean): Promise<number> {
    const code = await this.#knownCode(isCut);
    // The kernel kills all processes of a container that ends, so exit code 137 may mean the container's end.
    const isKilled = code === EXIT_KILLED && this.#killing === null;
    if (code === null || (isKilled && (await this.#containerEnds()))) {
      throw await lostCommand(this.#parts.engine, this.#parts.container);
    }
    const held = this.#held ?? Buffer.alloc(0);
    const problem = problemOf(this.#parts.program, code, held.toString());
    if (problem === null) this.stdout.push(held);
    else (this.#parts.hasTerminal ? this.stdout : this.stderr).push(problem.stderr);
    return problem?.returncode ?? code;
  }

  /**
   * Returns the exit code, or null. Null: the connection broke while the command runs, or the daemon has
   * dropped its record.
   */
  async #knownCode(isCut: boolean): Promise<number | null> {
    try {
      return (await pollExitCode(() => this.#inspect(), isCut ? 1 : END_TRIES)) ?? null;
    } catch (error) {
      if (statusOf(error) !== 404) throw error;
    }
    return null;
  }

  /**
   * Returns true if the container ends within 500 ms. The daemon reports it after the end of its processes.
   */
  async #containerEnds(): Promise<boolean> {
    const { engine, container } = this.#parts;
    const ended = await poll(END_TRIES, END_STEP_MS, async () =>
      (await inspectExit(engine, container)) === 'running' ? undefined : true,
    );
    return ended ?? false;
  }
}
