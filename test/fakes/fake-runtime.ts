import net from 'node:net';
import { encodeFrame, type Frame, FrameReader } from '../../src/runtime/frames.ts';
import {
  type CallError,
  type CallHeader,
  FRAME,
  type Hello,
  type HelloOk,
  type Init,
  PROTOCOL_VERSION,
  type Stop,
} from '../../src/runtime/protocol.ts';
import { everyFrame } from './every-frame.ts';

/** Context that a handler of a fake instance receives. */
export interface FakeContext {
  readonly header: CallHeader;
  readonly init: Init;
  /** Aborts when the call is cancelled. */
  readonly signal: AbortSignal;
  /** Memory of the instance, which all its calls share. */
  readonly state: Map<string, unknown>;
  /** Ends the whole instance, as `os._exit` does in Python. */
  readonly exit: (code: number) => void;
  /** Writes a line to the log. */
  readonly print: (line: string) => void;
}

export type FakeHandler = (event: unknown, context: FakeContext) => unknown;

export interface FakeRuntimeOptions {
  readonly path: string;
  readonly secret: string;
  readonly handlers: ReadonlyMap<string, FakeHandler>;
  /** Makes the runtime report when it begins to load. */
  readonly tellsBegin?: boolean;
  readonly onExit: (code: number) => void;
  readonly print: (line: string) => void;
}

interface QueuedCall {
  readonly connection: Connection;
  readonly callId: number;
  readonly header: CallHeader;
  readonly event: unknown;
  readonly abort: AbortController;
}

interface Connection {
  readonly socket: net.Socket;
  readonly hello: Hello;
}

/**
 * A runtime in this process that speaks the runtime protocol on a unix socket. `handler`, `initializer` and
 * `preStop` of INIT name functions of `handlers`. An unknown name is a load failure (4001). Without a handler
 * a call fails with `empty user call code` (4201).
 */
export class FakeRuntime {
  readonly #options: FakeRuntimeOptions;
  readonly #server: net.Server;
  readonly #connections = new Set<Connection>();
  readonly #sockets = new Set<net.Socket>();
  readonly #queue: QueuedCall[] = [];
  readonly #running = new Set<QueuedCall>();
  readonly #state = new Map<string, unknown>();
  #init: Init | undefined;
  #status: HelloOk['state'] = 'new';
  #failure: CallError | undefined;
  #silence: Promise<void> | undefined;

  constructor(options: FakeRuntimeOptions) {
    this.#options = options;
    this.#server = net.createServer(socket => this.#accept(socket));
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.#options.path, resolve);
    });
  }

  /** Sends bytes without a request, over the data connections. */
  say(bytes: Buffer): void {
    for (const { socket, hello } of this.#connections) if (hello.role === 'data') socket.write(bytes);
  }

  /** Breaks every connection. The runtime keeps running. */
  dropConnections(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Refuses new connections and breaks the open ones. The runtime keeps running but cannot be reached. */
  becomeUnreachable(): void {
    this.#server.close();
    this.dropConnections();
  }

  /** Accepts new connections but reads nothing from them before `until` resolves. */
  fallSilent(until: Promise<void>): void {
    this.#silence = until;
  }

  /** Breaks everything, as the end of a process does. */
  kill(): void {
    for (const call of this.#running) call.abort.abort('killed');
    this.#queue.length = 0;
    this.becomeUnreachable();
  }

  /** Stops the runtime as SIGTERM does. */
  async stop(graceMs: number): Promise<CallError | undefined> {
    if (this.#status === 'stopping') return undefined;
    const wasReady = this.#status === 'ready';
    this.#status = 'stopping';
    for (const call of this.#queue.splice(0))
      this.#answerError(call, { code: 4000, message: 'the runtime is stopping' });
    for (const call of this.#running) call.abort.abort('stop');
    const preStop = this.#init?.preStop;
    if (!wasReady || !preStop) return undefined;
    try {
      await withTimeout(Promise.resolve(this.#run(preStop, undefined, undefined)), graceMs, 'pre_stop timed out');
      return undefined;
    } catch (error) {
      return { code: 4009, message: textOf(error) };
    }
  }

  #accept(socket: net.Socket): void {
    this.#sockets.add(socket);
    let connection: Connection | undefined;
    const reader = new FrameReader(
      everyFrame(frame => {
        if (connection) this.#onFrame(connection, frame);
        else connection = this.#greet(socket, frame);
      }),
    );
    socket.on('data', chunk => {
      try {
        reader.push(chunk);
      } catch {
        socket.destroy();
      }
    });
    if (this.#silence) {
      socket.pause();
      void this.#silence.then(() => socket.resume());
    }
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#sockets.delete(socket);
      if (connection) this.#leave(connection);
    });
  }

  #greet(socket: net.Socket, frame: Frame): Connection | undefined {
    const hello = frame.type === FRAME.HELLO ? (JSON.parse(frame.payload.toString()) as Hello) : undefined;
    if (hello?.secret !== this.#options.secret || hello.version !== PROTOCOL_VERSION) {
      const error: CallError = { code: 4000, message: 'wrong secret, version or first frame' };
      socket.end(encodeFrame(FRAME.ERROR, 0, JSON.stringify(error)));
      return undefined;
    }
    const answer: HelloOk = {
      version: PROTOCOL_VERSION,
      runtime: 'fake',
      sdk: 'fake/1',
      state: this.#status,
      durable: 1,
      ...(this.#init?.durable && { stateVersion: this.#init.durable.version }),
      ...(this.#failure && { error: this.#failure }),
    };
    socket.write(encodeFrame(FRAME.HELLO_OK, 0, JSON.stringify(answer)));
    const connection = { socket, hello };
    this.#connections.add(connection);
    return connection;
  }

  /** Drops the queued calls of an ended connection and cancels its running ones. */
  #leave(connection: Connection): void {
    this.#connections.delete(connection);
    for (let i = this.#queue.length - 1; i >= 0; i--) {
      if (this.#queue[i]?.connection === connection) this.#queue.splice(i, 1);
    }
    for (const call of this.#running) if (call.connection === connection) call.abort.abort('caller');
  }

  #onFrame(connection: Connection, frame: Frame): void {
    const json = () => JSON.parse(frame.payload.toString()) as unknown;
    if (frame.type === FRAME.INIT) void this.#initialize(connection, json() as Init);
    else if (frame.type === FRAME.CALL) this.#enqueue(connection, frame);
    else if (frame.type === FRAME.CANCEL) this.#cancel(connection, frame.callId, (json() as { reason: string }).reason);
    else if (frame.type === FRAME.STOP) void this.#stopFor(connection, json() as Stop);
    else if (frame.type === FRAME.PING) {
      const pong = { running: this.#running.size, queued: this.#queue.length };
      this.#write(connection, FRAME.PONG, 0, JSON.stringify(pong));
    }
  }

  async #initialize(connection: Connection, init: Init): Promise<void> {
    if (this.#status === 'new') {
      this.#status = 'initializing';
      this.#init = init;
      this.#failure = await this.#load(init);
      this.#status = this.#failure ? 'failed' : 'ready';
    }
    if (this.#failure) this.#write(connection, FRAME.ERROR, 0, JSON.stringify(this.#failure));
    else {
      const began = this.#options.tellsBegin ? { beganMicros: Number(process.hrtime.bigint() / 1000n) } : {};
      this.#write(connection, FRAME.INIT_OK, 0, JSON.stringify({ loadMicros: 1, initMicros: 1, ...began }));
    }
  }

  async #load(init: Init): Promise<CallError | undefined> {
    if (init.handler === '') return { code: 4201, message: 'empty user call code' };
    for (const name of [init.handler, init.initializer, init.preStop]) {
      if (name !== '' && !this.#options.handlers.has(name)) return { code: 4001, message: `no entry ${name}` };
    }
    if (init.initializer === '') return undefined;
    try {
      await withTimeout(Promise.resolve(this.#run(init.initializer, undefined, undefined)), init.initTimeoutMs, 'late');
      return undefined;
    } catch (error) {
      const isLate = textOf(error) === 'late';
      return isLate ? { code: 4211, message: 'initializer timed out' } : { code: 4201, message: textOf(error) };
    }
  }

  #enqueue(connection: Connection, { callId, payload }: Frame): void {
    const headerBytes = payload.readUInt16BE(0);
    const header = JSON.parse(payload.subarray(2, 2 + headerBytes).toString()) as CallHeader;
    const event: unknown = JSON.parse(payload.subarray(2 + headerBytes).toString());
    const call: QueuedCall = { connection, callId, header, event, abort: new AbortController() };
    if (this.#failure) this.#answerError(call, this.#failure);
    else if (this.#status !== 'ready')
      this.#answerError(call, { code: 4000, message: `the runtime is ${this.#status}` });
    else {
      this.#queue.push(call);
      this.#next();
    }
  }

  #next(): void {
    while (this.#running.size < (this.#init?.concurrency ?? 1)) {
      const call = this.#queue.shift();
      if (!call) return;
      this.#running.add(call);
      void this.#serve(call);
    }
  }

  async #serve(call: QueuedCall): Promise<void> {
    try {
      const value = await Promise.race([this.#run(this.#init?.handler ?? '', call.event, call), cancelled(call)]);
      const json = Buffer.from(JSON.stringify(value ?? null));
      const payload = Buffer.alloc(4 + json.length);
      payload.writeUInt32BE(1);
      json.copy(payload, 4);
      this.#write(call.connection, FRAME.RESULT, call.callId, payload);
    } catch (error) {
      const code = call.abort.signal.reason === 'timeout' ? 4010 : 4002;
      this.#answerError(call, { code, message: `Fail to run user call handler. err: ${textOf(error)}.`, runMicros: 1 });
    }
    this.#running.delete(call);
    this.#next();
  }

  #cancel(connection: Connection, callId: number, reason: string): void {
    const isMeant = (call: QueuedCall) =>
      call.callId === callId && call.connection.hello.client === connection.hello.client;
    const queued = this.#queue.findIndex(isMeant);
    if (queued >= 0) {
      for (const call of this.#queue.splice(queued, 1)) this.#answerError(call, { code: 4002, message: 'cancelled' });
      return;
    }
    for (const call of this.#running) if (isMeant(call)) call.abort.abort(reason);
  }

  async #stopFor(connection: Connection, { graceMs }: Stop): Promise<void> {
    const error = await this.stop(graceMs);
    const end = () => this.#options.onExit(0);
    connection.socket.write(encodeFrame(FRAME.STOPPED, 0, JSON.stringify(error ? { error } : {})), end);
  }

  #run(name: string, event: unknown, call: QueuedCall | undefined): unknown {
    const handler = this.#options.handlers.get(name);
    if (!handler || !this.#init) throw new Error(`no entry ${name}`);
    return handler(event, {
      header: call?.header ?? { traceId: '', traceparent: '', requestId: '', remainingMs: 0 },
      init: this.#init,
      signal: call?.abort.signal ?? new AbortController().signal,
      state: this.#state,
      exit: code => this.#options.onExit(code),
      print: line => this.#options.print(line),
    });
  }

  #answerError(call: QueuedCall, error: CallError): void {
    this.#write(call.connection, FRAME.ERROR, call.callId, JSON.stringify(error));
  }

  #write(connection: Connection, type: number, callId: number, payload: Buffer | string): void {
    if (this.#connections.has(connection)) connection.socket.write(encodeFrame(type, callId, payload));
  }
}

function cancelled({ abort: { signal } }: QueuedCall): Promise<never> {
  return new Promise((_, reject) => {
    const end = () => reject(new Error(`cancelled: ${String(signal.reason)}`));
    if (signal.aborted) end();
    signal.addEventListener('abort', end, { once: true });
  });
}

function withTimeout<T>(promise: Promise<T>, timeoutMs: number, text: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(text)), timeoutMs);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
