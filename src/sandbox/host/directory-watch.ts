import { messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { FrameJoiner } from '../../lib/length-frames.ts';
import type { DirectoryWatch, FileFacts, WatchEvent } from '../files.ts';
import type { AccessConnection } from './access-connection.ts';

/** Size of queued messages from which the watch stops reading: at least 65 000 events without facts. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024;
/** Maximum size of one message, which has up to 512 events, each with a path and facts. */
const MAX_FRAME_BYTES = 16 * 1024 * 1024;

/** An event as `runtimes/native/src/changes.c` writes it. */
type EventTuple<F> = readonly [type: WatchEvent['type'], name: string, facts?: F];

/** A watch that a process inside serves over a connection. */
export class RemoteWatch<F> implements DirectoryWatch {
  readonly ended: Promise<Error | null>;
  readonly #connection: AccessConnection;
  readonly #factsOf: (facts: F) => FileFacts;
  readonly #joiner = new FrameJoiner(MAX_FRAME_BYTES);
  /** Settle functions of waiting flushes, by the number of each request. */
  readonly #flushes = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  #queue: WatchEvent[] = [];
  #queuedBytes = 0;
  #wake: (() => void) | undefined;
  #lastFlush = 0;
  /** The reason of the end; null after `close`; undefined while the watch stands. */
  #end: Error | null | undefined;
  #reportEnd!: (error: Error | null) => void;

  /** `connection` has answered that the watch stands. */
  constructor(connection: AccessConnection, factsOf: (facts: F) => FileFacts) {
    this.#connection = connection;
    this.#factsOf = factsOf;
    this.ended = new Promise(resolve => {
      this.#reportEnd = resolve;
    });
    const { socket } = connection;
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.once('end', () => this.#finish(connection.failure()));
    socket.once('close', () => this.#finish(connection.failure()));
    socket.resume();
    if (socket.destroyed) this.#finish(connection.failure());
  }

  drain(): WatchEvent[] {
    const taken = this.#queue;
    this.#queue = [];
    this.#queuedBytes = 0;
    if (taken.length === 0 && this.#end instanceof Error) throw this.#end;
    if (this.#end === undefined) this.#connection.socket.resume();
    return taken;
  }

  async flush(): Promise<void> {
    if (this.#end instanceof Error) throw this.#end;
    if (this.#end === null || this.#isFull()) return;
    this.#lastFlush += 1;
    const id = this.#lastFlush;
    const flushed = new Promise<void>((resolve, reject) => this.#flushes.set(id, { resolve, reject }));
    this.#connection.send({ op: 'flush', id });
    await flushed;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<WatchEvent> {
    try {
      for (;;) {
        yield* this.drain();
        if (this.#queue.length > 0) continue;
        if (this.#end === null) return;
        if (this.#end !== undefined) throw this.#end;
        await new Promise<void>(resolve => {
          this.#wake = resolve;
        });
      }
    } finally {
      this.close();
    }
  }

  close(): void {
    this.#finish(null);
  }

  #isFull(): boolean {
    return this.#queuedBytes >= MAX_QUEUED_BYTES;
  }

  #read(chunk: Buffer): void {
    if (this.#end !== undefined) return;
    this.#joiner.push(chunk);
    try {
      for (let frame = this.#joiner.shift(); frame !== null; frame = this.#joiner.shift()) this.#accept(frame.body);
    } catch (error) {
      const cause = error instanceof ServiceError ? error : unavailable(`the watch failed: ${messageOf(error)}`);
      this.#finish(cause);
      return;
    }
    this.#notify();
    if (this.#isFull()) this.#pause();
  }

  #accept(frame: Buffer): void {
    this.#queuedBytes += frame.length;
    const message = JSON.parse(frame.toString()) as Record<string, unknown>;
    if (message.ok !== true) throw new ServiceError(message.code as ServiceError['code'], String(message.message));
    for (const [type, name, facts] of (message.events ?? []) as EventTuple<F>[]) {
      this.#queue.push(facts === undefined ? { type, name } : { type, name, facts: this.#factsOf(facts) });
    }
    if (typeof message.flushed === 'number') {
      this.#flushes.get(message.flushed)?.resolve();
      this.#flushes.delete(message.flushed);
    }
  }

  /** Stops reading until `take`. Waiting flushes resolve: their events are behind those in the queue. */
  #pause(): void {
    this.#connection.socket.pause();
    for (const { resolve } of this.#flushes.values()) resolve();
    this.#flushes.clear();
  }

  #finish(end: Error | null): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#connection.socket.destroy();
    for (const { resolve, reject } of this.#flushes.values()) {
      if (end === null) resolve();
      else reject(end);
    }
    this.#flushes.clear();
    this.#reportEnd(end);
    this.#notify();
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
