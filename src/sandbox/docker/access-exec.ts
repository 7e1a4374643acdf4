import { type Duplex, Readable, Writable } from 'node:stream';
import { deadlineExceeded, failedPrecondition, unavailable } from '../../core/error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { OpenExec, OpenExecRequest, TerminalSize } from '../access.ts';
import { type Engine, statusOf } from './engine.ts';
import { commandVariables } from './exec.ts';
import { FrameSplitter } from './multiplex.ts';
import { killCommand } from './processes.ts';

/** The daemon closes the streams of a command a moment before it knows how it ended. */
const END_TRIES = 20;
const END_STEP_MS = 25;

type Exec = Awaited<ReturnType<ReturnType<Engine['docker']['getContainer']>['exec']>>;

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
  const command = new OpenCommand(engine, container, exec, stream, request.terminal !== null, logger);
  const abort = () => command.giveUp();
  signal.addEventListener('abort', abort, { once: true });
  command.ended.catch(() => undefined).finally(() => signal.removeEventListener('abort', abort));
  if (signal.aborted) {
    abort();
    throw deadlineExceeded('the command was given up before it began');
  }
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
    const exec = await engine.request('run a command', docker =>
      docker.getContainer(container).exec({
        Cmd: [...argv],
        Env: commandVariables(hasTerminal ? { TERM: 'xterm-256color', ...env } : env),
        AttachStdin: true,
        AttachStdout: true,
        AttachStderr: true,
        Tty: hasTerminal,
        ...(workingDir === '' ? {} : { WorkingDir: workingDir }),
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
  readonly #engine: Engine;
  readonly #container: string;
  readonly #exec: Exec;
  readonly #stream: Duplex;
  readonly #hasTerminal: boolean;
  readonly #logger: Logger;
  #hasEnded = false;
  #killing: Promise<void> | null = null;

  constructor(engine: Engine, container: string, exec: Exec, stream: Duplex, hasTerminal: boolean, logger: Logger) {
    this.#engine = engine;
    this.#container = container;
    this.#exec = exec;
    this.#stream = stream;
    this.#hasTerminal = hasTerminal;
    this.#logger = logger;
    const isFull = (output: Readable) => output.readableLength >= output.readableHighWaterMark;
    const resume = () => {
      if (!isFull(this.stdout) && !isFull(this.stderr)) stream.resume();
    };
    this.stdout = new Readable({ read: resume });
    this.stderr = new Readable({ read: resume });
    this.stdin = new Writable({
      write: (chunk, _encoding, done) => {
        if (stream.writable) stream.write(chunk, error => done(error ?? null));
        // What a command does not want to read any more is no failure of whoever writes it.
        else done();
      },
      final: done => {
        if (!hasTerminal) stream.end();
        done();
      },
    });
    for (const each of [this.stdin, this.stdout, this.stderr]) each.on('error', () => undefined);
    const splitter = new FrameSplitter();
    if (hasTerminal) this.stderr.push(null);
    stream.on('data', (chunk: Buffer) => {
      const takers = hasTerminal
        ? [this.stdout.push(chunk)]
        : splitter.push(chunk).map(({ isStderr, data }) => (isStderr ? this.stderr : this.stdout).push(data));
      if (takers.includes(false)) stream.pause();
    });
    this.ended = new Promise((resolve, reject) => {
      // An end while the command runs is the container's, or the daemon's.
      const finish = () => this.#finish().then(resolve, reject);
      stream.on('error', () => undefined);
      stream.once('end', finish);
      stream.once('close', finish);
    });
    this.ended.catch(() => undefined);
  }

  resize({ columns, rows }: TerminalSize): void {
    if (!this.#hasTerminal || this.#hasEnded) return;
    this.#engine
      .request('resize a terminal', () => this.#exec.resize({ w: columns, h: rows }))
      // It has ended, or has not quite begun: a terminal has some size then as well.
      .catch(error => this.#logger.debug({ container: this.#container, err: error }, 'a terminal was not resized'));
  }

  kill(): void {
    if (this.#hasEnded) return;
    this.#killing ??= this.#kill();
  }

  /** Nobody waits for it any more. */
  giveUp(): void {
    this.kill();
    this.#stream.destroy();
    for (const each of [this.stdin, this.stdout, this.stderr]) each.destroy();
  }

  async #kill(): Promise<void> {
    await killCommand(this.#engine, this.#container, this.#exec, this.#logger);
  }

  #inspect() {
    return this.#engine.request('inspect a command', () => this.#exec.inspect());
  }

  #finished: Promise<number> | null = null;

  #finish(): Promise<number> {
    this.#finished ??= this.#readCode().finally(() => {
      this.#hasEnded = true;
      if (!this.stdout.destroyed) this.stdout.push(null);
      if (!this.stderr.destroyed && !this.#hasTerminal) this.stderr.push(null);
      this.stdin.destroy();
      this.#stream.destroy();
    });
    return this.#finished;
  }

  async #readCode(): Promise<number> {
    const isCut = !this.#stream.readableEnded;
    try {
      for (let tried = 0; ; tried += 1) {
        const { Running: isRunning, ExitCode: code } = await this.#inspect();
        if (!isRunning && code !== null) return code;
        // One that has been given up runs until it has been killed.
        if (this.#killing !== null) await this.#killing;
        else if (isCut) break;
        if (tried >= END_TRIES) break;
        await new Promise(resolve => setTimeout(resolve, END_STEP_MS));
      }
    } catch (error) {
      if (statusOf(error) !== 404) throw error;
    }
    throw unavailable('the sandbox ended before the command did');
  }
}
