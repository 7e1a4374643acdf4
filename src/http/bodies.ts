import type { IncomingMessage } from 'node:http';
import { resourceExhausted } from '../core/error.ts';

export interface BodiesOptions {
  /** Of all bodies that are being received. */
  readonly maxBytes: number;
  /** A body of which nothing comes for so long is given up. */
  readonly idleMs: number;
}

/** A body that a caller does not send, or sends too much of; `statusCode` says how it is answered. */
export class BodyError extends Error {
  override readonly name = 'BodyError';
  readonly statusCode: 400 | 408 | 413;

  constructor(statusCode: 400 | 408 | 413, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

type Done = (error: Error | null, body: Buffer | undefined) => void;

/** One tenant's share of the budget: the rest is for the others. */
const TENANT_SHARE = 0.75;
/** When there is no room, a body of which nothing came for so long makes it. */
const STALE_MS = 2000;
const LOOK_MS = 1000;

/**
 * Reads the bodies of requests. One that comes whole with its first chunk, as nearly all do, is passed on and never counted. Of any
 * other each byte counts from the first on, until it is whole: the memory of unfinished bodies is bounded however many there are.
 */
export class Bodies {
  readonly #options: BodiesOptions;
  readonly #open = new Set<UnfinishedBody>();
  readonly #heldByTenant = new Map<string, number>();
  #held = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: BodiesOptions) {
    this.#options = options;
  }

  /** Bytes that unfinished bodies hold now. */
  get heldBytes(): number {
    return this.#held;
  }

  /**
   * Calls `done` once: with the whole body (undefined when it is empty), a `BodyError`, or `resource_exhausted`. After an error, what still
   * comes is read and dropped, so that the caller can read the answer.
   */
  read(request: IncomingMessage, tenant: string, maxBytes: number, done: Done): void {
    const { headers } = request;
    const announced = headers['content-length'] === undefined ? null : Number(headers['content-length']);
    if (announced !== null && announced > maxBytes) {
      request.resume();
      done(tooLarge(maxBytes), undefined);
      return;
    }
    let whole: Buffer | undefined;
    let unfinished: UnfinishedBody | undefined;
    let hasEnded = false;
    request.on('data', (chunk: Buffer) => {
      if (unfinished !== undefined) this.#add(unfinished, chunk);
      else if (chunk.length === announced) whole = chunk;
      else {
        unfinished = this.#begin(tenant, maxBytes, announced, done);
        this.#add(unfinished, chunk);
      }
    });
    request.on('end', () => {
      hasEnded = true;
      if (unfinished === undefined) done(null, whole);
      else this.#end(unfinished, null);
    });
    // Comes behind the end too. Before it: the caller has left, perhaps before its first byte.
    request.on('close', () => {
      if (hasEnded) return;
      if (unfinished === undefined) done(callerLeft(), undefined);
      else this.#end(unfinished, callerLeft());
    });
  }

  #begin(tenant: string, maxBytes: number, announced: number | null, done: Done): UnfinishedBody {
    const body = new UnfinishedBody(tenant, maxBytes, announced, done);
    this.#open.add(body);
    this.#timer ??= setInterval(() => this.#look(), LOOK_MS).unref();
    return body;
  }

  #add(body: UnfinishedBody, chunk: Buffer): void {
    if (body.isOver) return;
    const { length } = chunk;
    if (body.bytes + length > body.maxBytes) {
      this.#end(body, tooLarge(body.maxBytes));
      return;
    }
    const hasCapacity = this.#hasCapacity(body, length);
    // Others may have been ended for it, and whoever hears of that does as he likes.
    if (body.isOver) return;
    if (!hasCapacity) {
      this.#end(
        body,
        resourceExhausted('too many request bodies are being received, try again later', { retryAfterSeconds: 1 }),
      );
      return;
    }
    this.#held += length;
    this.#heldByTenant.set(body.tenant, (this.#heldByTenant.get(body.tenant) ?? 0) + length);
    body.add(chunk);
  }

  #hasCapacity(asking: UnfinishedBody, bytes: number): boolean {
    const { maxBytes } = this.#options;
    const { tenant } = asking;
    const fitsAll = () => this.#held + bytes <= maxBytes;
    const fits = () => fitsAll() && (this.#heldByTenant.get(tenant) ?? 0) + bytes <= maxBytes * TENANT_SHARE;
    if (fits()) return true;
    const nowMs = performance.now();
    for (const body of this.#open) {
      // The one that asks is not stale, however long it was silent: bytes of it are here.
      if (body === asking || nowMs - body.movedMs < STALE_MS) continue;
      // What others hold makes no room in this tenant's share.
      if (body.tenant !== tenant && fitsAll()) continue;
      this.#end(body, new BodyError(408, 'the body of the request did not arrive in time'));
      if (fits()) return true;
    }
    return false;
  }

  #end(body: UnfinishedBody, error: Error | null): void {
    if (body.isOver) return;
    body.isOver = true;
    this.#open.delete(body);
    this.#held -= body.bytes;
    const left = (this.#heldByTenant.get(body.tenant) ?? 0) - body.bytes;
    if (left > 0) this.#heldByTenant.set(body.tenant, left);
    else this.#heldByTenant.delete(body.tenant);
    if (this.#open.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    body.done(error, error === null ? body.take() : undefined);
    body.forget();
  }

  #look(): void {
    const nowMs = performance.now();
    for (const body of this.#open) {
      if (nowMs - body.movedMs < this.#options.idleMs) continue;
      this.#end(body, new BodyError(408, 'the body of the request did not arrive in time'));
    }
  }
}

/** The least that is made for a body of unknown length. */
const FIRST_BYTES = 16 * 1024;

class UnfinishedBody {
  readonly tenant: string;
  readonly maxBytes: number;
  readonly done: Done;
  bytes = 0;
  movedMs = performance.now();
  isOver = false;
  /** One piece, however small its chunks are: each chunk that is kept by itself takes more than its bytes. */
  #target: Buffer;

  constructor(tenant: string, maxBytes: number, announced: number | null, done: Done) {
    this.tenant = tenant;
    this.maxBytes = maxBytes;
    this.done = done;
    // Memory that was not written to yet takes no place.
    this.#target = Buffer.allocUnsafeSlow(announced ?? FIRST_BYTES);
  }

  add(chunk: Buffer): void {
    const needed = this.bytes + chunk.length;
    if (needed > this.#target.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#target.length));
      this.#target.copy(larger, 0, 0, this.bytes);
      this.#target = larger;
    }
    chunk.copy(this.#target, this.bytes);
    this.bytes = needed;
    this.movedMs = performance.now();
  }

  take(): Buffer {
    return this.#target.subarray(0, this.bytes);
  }

  forget(): void {
    this.#target = EMPTY;
  }
}

const EMPTY = Buffer.alloc(0);

function callerLeft(): BodyError {
  return new BodyError(400, 'the caller went away before the end of its body');
}

function tooLarge(maxBytes: number): BodyError {
  return new BodyError(413, `request body is larger than ${maxBytes} bytes`);
}
