import { type Duplex, Readable, Writable } from 'node:stream';
import { deadlineExceeded, failedPrecondition, unavailable } from '../../core/error.ts';
import { poll } from '../../lib/backoff.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { OpenExec, OpenExecRequest, TerminalSize } from '../access.ts';
import { type Engine, statusOf } from './engine.ts';
import { commandDirectory, commandVariables, DAEMON_SAYS, problemOf } from './exec.ts';
import { inspectExit } from './exits.ts';
import { FrameSplitter } from './multiplex.ts';
import { killCommand } from './processes.ts';

/** The daemon closes the streams of a command a moment before it knows how it ended. */
const END_TRIES = 20;
const END_STEP_MS = 25;
const RESIZE_TRIES = 40;

const EXIT_KILLED = 137;
/** The daemon's words are shorter. */
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

/** Starts a command in a container, with its streams open; `SandboxAccess.openExec` says the rest. */
export async function openCommand(
  engine: Engine,
  container: string,
  request: OpenExecRequest,
  signal: AbortSignal,
  logger: Logger,
): Promise<OpenExec> {
  if (signal.aborted) throw deadlineExceeded('the command was given up before it began');
  const { exec, stream } = await begin(engine, container, request);
  const program = request.argv[0] ?? '';
  const hasTerminal = request.terminal !== null;
  const command = new OpenCommand({ engine, container, exec, stream, program, hasTerminal, logger });
  const letGo = onAbort(signal, () => command.giveUp());
  command.ended.catch(() => undefined).finally(letGo);
  if (signal.aborted) throw deadlineExceeded('the command was given up before it began');
  // The size that a terminal is made with is known to newer daemons only.
  if (request.terminal !== null) command.resize(request.terminal);
  return command;
}

async function begin(
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
 * One command over one connection to the daemon. Both outputs come over it, so a reader who leaves one of them unread holds up the other
 * as well.
 */
class OpenCommand implements OpenExec {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly ended: Promise<number>;
  readonly #parts: CommandParts;
  readonly #splitter = new FrameSplitter();
  /** A beginning that may be the daemon's words in place of the command's. */
  #held: Buffer | null = Buffer.alloc(0);
  #isOver = false;
  #killing: Promise<void> | null = null;
  #resized: Promise<void> = Promise.resolve();
  #fail: (error: Error) => void = () => undefined;

  constructor(parts: CommandParts) {
    this.#parts = parts;
    const { stream, hasTerminal } = parts;
    const isFull = (output: Readable) => output.readableLength >= output.readableHighWaterMark;
    // An output is asked for more while what it gives away at this moment still counts as there.
    const resumeUnlessFull = (other: () => Readable) => () => {
      if (!isFull(other())) stream.resume();
    };
    this.stdout = new Readable({ read: resumeUnlessFull(() => this.stderr) });
    this.stderr = new Readable({ read: resumeUnlessFull(() => this.stdout) });
    // A command that does not want to read any more is no failure of whoever writes to it.
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
      stream.on('data', (chunk: Buffer) => this.#take(chunk));
      stream.on('error', () => undefined);
      // An end while the command runs is the container's, or the daemon's.
      stream.once('close', () => this.#readCode(!stream.readableEnded).then(succeed, this.#fail));
      stream.once('end', () => stream.destroy());
    });
    this.ended.catch(() => undefined);
  }

  resize({ columns, rows }: TerminalSize): void {
    if (!this.#parts.hasTerminal || this.#isOver) return;
    // One after the other, so that the last one holds.
    this.#resized = this.#resized.then(() => this.#resize(columns, rows));
  }

  /** Tried again while the command is just being started. */
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
    if (resized === undefined) logger.debug({ container, err: failure }, 'a terminal was not resized');
  }

  kill(): void {
    const { engine, container, exec, logger } = this.#parts;
    if (!this.#isOver) this.#killing ??= killCommand(engine, container, exec, logger);
  }

  /** Nobody waits for it any more. */
  giveUp(): void {
    this.kill();
    this.#fail(deadlineExceeded('the command was given up by its caller'));
  }

  #take(chunk: Buffer): void {
    const { stream, hasTerminal } = this.#parts;
    const frames = hasTerminal ? [{ isStderr: false, data: chunk }] : this.#splitter.push(chunk);
    for (const { isStderr, data } of frames) {
      if (isStderr ? !this.stderr.push(data) : !this.#takeOutput(data)) stream.pause();
    }
  }

  /** False when the reader has enough for now. */
  #takeOutput(data: Buffer): boolean {
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
    // The end of the container kills what runs in it.
    const isKilled = code === EXIT_KILLED && this.#killing === null;
    if (code === null || (isKilled && (await this.#containerEnds()))) {
      throw unavailable('the sandbox ended before the command did');
    }
    const held = this.#held ?? Buffer.alloc(0);
    const problem = problemOf(this.#parts.program, code, held.toString());
    if (problem === null) this.stdout.push(held);
    else (this.#parts.hasTerminal ? this.stdout : this.stderr).push(problem.stderr);
    return problem?.returncode ?? code;
  }

  /** Null when it runs and its connection was lost, or it is not known any more. */
  async #knownCode(isCut: boolean): Promise<number | null> {
    try {
      const code = await poll(isCut ? 1 : END_TRIES, END_STEP_MS, async () => {
        const { Running: isRunning, ExitCode: exitCode } = await this.#inspect();
        return isRunning || exitCode === null ? undefined : exitCode;
      });
      return code ?? null;
    } catch (error) {
      if (statusOf(error) !== 404) throw error;
    }
    return null;
  }

  /** The daemon hears of the end of a container after that of what ran in it. */
  async #containerEnds(): Promise<boolean> {
    const { engine, container } = this.#parts;
    const ended = await poll(END_TRIES, END_STEP_MS, async () =>
      (await inspectExit(engine, container)) === 'running' ? undefined : true,
    );
    return ended ?? false;
  }
}
