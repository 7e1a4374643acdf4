import { constants } from 'node:os';
import { Readable } from 'node:stream';
import { failedPrecondition, invalidRequest, type ServiceError } from '../../core/error.ts';
import { FrameJoiner, frameOf } from '../../lib/length-frames.ts';
import type {
  ProcessEnd,
  ProcessInfo,
  ProcessOutput,
  ProcessSelector,
  ProcessStream,
  SandboxProcesses,
  StartProcess,
  TerminalSize,
} from '../access.ts';
import { type AccessConnection, receiveFrames } from './access-connection.ts';
import { FileAccess } from './access-files.ts';

/** The first byte of each frame to a listener, as in `runtimes/native/src/peers.c`. */
const STDOUT = 1;
const STDERR = 2;
const EXIT = 3;
const MAX_FRAME_BYTES = 64 * 1024;
/** Largest frame of input, as in `peers.c`. */
const MAX_INPUT_BYTES = 64 * 1024;
/** Number of outputs that wait for a reader; each has at most 32 KiB. */
const MAX_WAITING_OUTPUTS = 4;
/** The longest delay that a timer accepts: the client's signal is the bound. */
const MAX_WAIT_MS = 2 ** 31 - 1;

/** The file and process operations of a sandbox over access connections. */
export abstract class ProcessAccess extends FileAccess implements SandboxProcesses {
  async startProcess(request: StartProcess, signal: AbortSignal): Promise<ProcessStream> {
    const { argv, workingDir, env, user, terminal, stdin, tag = null, timeLimitMs, hidden = false } = request;
    const start = { op: 'start', argv, workingDir, env, user, terminal, stdin, tag, timeLimitMs, hidden };
    return new RemoteProcess(await this.openAccess('processes', start, signal));
  }

  async attachProcess(process: ProcessSelector, signal: AbortSignal): Promise<ProcessStream> {
    return new RemoteProcess(await this.openAccess('processes', { op: 'attach', ...selected(process) }, signal));
  }

  async listProcesses(signal: AbortSignal): Promise<readonly ProcessInfo[]> {
    return (await this.#ask({ op: 'list' }, signal)).processes as readonly ProcessInfo[];
  }

  async writeInput(process: ProcessSelector, data: Buffer, isTerminal: boolean, signal: AbortSignal): Promise<void> {
    const input = { op: 'input', ...selected(process), terminal: isTerminal };
    const connection = await this.openAccess('processes', input, signal);
    try {
      for (let at = 0; at < data.length; at += MAX_INPUT_BYTES) {
        connection.socket.write(frameOf(data.subarray(at, at + MAX_INPUT_BYTES)));
        await connection.next(MAX_WAIT_MS);
      }
    } finally {
      connection.socket.destroy();
    }
  }

  async closeInput(process: ProcessSelector, signal: AbortSignal): Promise<void> {
    await this.#ask({ op: 'closeInput', ...selected(process) }, signal);
  }

  async signalProcess(process: ProcessSelector, name: NodeJS.Signals, signal: AbortSignal): Promise<void> {
    const number = constants.signals[name];
    if (number === undefined) throw invalidRequest(`there is no signal ${name}`);
    await this.#ask({ op: 'signal', ...selected(process), number }, signal);
  }

  async resizeProcess(process: ProcessSelector, size: TerminalSize, signal: AbortSignal): Promise<void> {
    await this.#ask({ op: 'resize', ...selected(process), terminal: size }, signal);
  }

  async #ask(request: object, signal: AbortSignal) {
    const { socket, answer } = await this.openAccess('processes', request, signal);
    socket.destroy();
    return answer;
  }
}

function selected(process: ProcessSelector): object {
  return typeof process === 'number' ? { pid: process } : { tag: process.tag };
}

/** Listens to a process over a connection to the sandbox's process table. */
class RemoteProcess implements ProcessStream {
  readonly pid: number;
  readonly output: Readable;
  readonly ended: Promise<ProcessEnd>;
  readonly #connection: AccessConnection;
  readonly #received = new FrameJoiner(MAX_FRAME_BYTES);
  #resolve: (end: ProcessEnd) => void = () => undefined;
  #reject: (error: ServiceError) => void = () => undefined;
  #isOver = false;

  constructor(connection: AccessConnection) {
    this.#connection = connection;
    this.pid = connection.answer.pid as number;
    const { socket } = connection;
    this.output = new Readable({
      objectMode: true,
      highWaterMark: MAX_WAITING_OUTPUTS,
      read: () => socket.resume(),
      destroy: (error, done) => {
        this.close();
        done(error);
      },
    });
    this.output.on('error', () => undefined);
    this.ended = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.ended.catch(() => undefined);
    socket.on('data', (chunk: Buffer) =>
      receiveFrames(socket, this.#received, chunk, (kind, payload) => this.#receive(kind, payload)),
    );
    socket.once('end', () => socket.destroy());
    socket.once('close', () => this.#fail(connection.failure()));
    if (socket.destroyed) this.#fail(connection.failure());
    else socket.resume();
  }

  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reject(failedPrecondition(`the connection to process ${this.pid} was closed before the process ended`));
    this.output.push(null);
    this.#connection.socket.destroy();
  }

  #receive(kind: number, payload: Buffer): void {
    if (this.#isOver) return;
    if (kind === EXIT) {
      this.#end(payload.readUInt32BE(0), payload.readUInt8(4), payload.readUInt8(5) === 1);
    } else if (kind === STDOUT || kind === STDERR) {
      const piped = kind === STDOUT ? 'stdout' : 'stderr';
      const output: ProcessOutput = {
        kind: this.#connection.answer.terminal === true ? 'terminal' : piped,
        data: payload,
      };
      if (!this.output.push(output)) this.#connection.socket.pause();
    }
  }

  #end(code: number, number: number, timedOut: boolean): void {
    this.#isOver = true;
    this.output.push(null);
    this.#resolve({ code: number === 0 ? code : null, signal: number === 0 ? null : signalName(number), timedOut });
    this.#connection.socket.destroy();
  }

  #fail(error: ServiceError): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reject(error);
    this.output.destroy(error);
  }
}

function signalName(number: number): string {
  return Object.entries(constants.signals).find(([, known]) => known === number)?.[0] ?? `signal ${number}`;
}
