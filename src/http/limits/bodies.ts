import type { IncomingMessage } from 'node:http';
import { resourceExhausted } from '../../core/error.ts';
import { TenantBudget } from '../../lib/budgets.ts';

export interface BodiesOptions {
  /** Maximum size of all unfinished bodies together. */
  readonly maxBytes: number;
  /** Idle time after which an unfinished body is aborted. */
  readonly idleMs: number;
}

/** A body that did not arrive or is too large. `statusCode` is the status of the answer. */
export class BodyError extends Error {
  override readonly name = 'BodyError';
  readonly statusCode: 400 | 408 | 413;

  constructor(statusCode: 400 | 408 | 413, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

type Done = (error: Error | null, body: Buffer | undefined) => void;

/** The largest share of the budget that one tenant may use. The rest stays free for other tenants. */
const TENANT_SHARE = 0.75;
/** Idle time after which a body may be aborted to free capacity for another one. */
const STALE_MS = 2000;
/** Longest interval between checks for idle bodies. */
const LOOK_MS = 1000;

/**
 * Reads request bodies and bounds the memory of unfinished ones.
 * A body that arrives whole in its first chunk, as nearly all do, is passed on without being counted. For
 * every other body each byte counts until the body is complete.
 */
export class Bodies {
  readonly #options: BodiesOptions;
  readonly #open = new Set<UnfinishedBody>();
  readonly #held: TenantBudget;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: BodiesOptions) {
    this.#options = options;
    this.#held = new TenantBudget(options.maxBytes, options.maxBytes * TENANT_SHARE);
  }

  /** Bytes that unfinished bodies occupy now. */
  get heldBytes(): number {
    return this.#held.taken;
  }

  /**
   * Reads a body and calls `done` once.
   * `done` receives the whole body (undefined if it is empty), a `BodyError`, or `resource_exhausted`.
   * After an error the remaining bytes are read and discarded, so that the client can read the answer.
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
        unfinished = this.#addBody(tenant, maxBytes, announced, done);
        this.#add(unfinished, chunk);
      }
    });
    request.on('end', () => {
      hasEnded = true;
      if (unfinished === undefined) done(null, whole);
      else this.#end(unfinished, null);
    });
    // Node emits `close` after `end` too. Without `end`, the client disconnected, possibly before the first
    // byte.
    request.on('close', () => {
      if (hasEnded) return;
      if (unfinished === undefined) done(callerLeft(), undefined);
      else this.#end(unfinished, callerLeft());
    });
  }

  #addBody(tenant: string, maxBytes: number, announced: number | null, done: Done): UnfinishedBody {
    const body = new UnfinishedBody(tenant, maxBytes, announced, done);
    this.#open.add(body);
    this.#timer ??= setInterval(() => this.#endIdleBodies(), Math.min(LOOK_MS, this.#options.idleMs / 2)).unref();
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
    // Freeing capacity ends other bodies, and their `done` callbacks may have ended this body.
    if (body.isOver) return;
    if (!hasCapacity) {
      this.#end(
        body,
        resourceExhausted('too many request bodies are being received, try again later', { retryAfterSeconds: 1 }),
      );
      return;
    }
    this.#held.acquire(body.tenant, length);
    body.add(chunk);
  }

  #hasCapacity(asking: UnfinishedBody, bytes: number): boolean {
    const { tenant } = asking;
    if (this.#held.fits(tenant, bytes)) return true;
    const nowMs = performance.now();
    for (const body of this.#open) {
      // The body that needs capacity is not stale, however long it was idle: it has just received bytes.
      if (body === asking || nowMs - body.movedMs < STALE_MS) continue;
      // Only bodies of the same tenant free capacity in the tenant's share.
      if (body.tenant !== tenant && this.#held.fitsInTotal(bytes)) continue;
      this.#end(body, new BodyError(408, 'the body of the request did not arrive in time'));
      if (this.#held.fits(tenant, bytes)) return true;
    }
    return false;
  }

  #end(body: UnfinishedBody, error: Error | null): void {
    if (body.isOver) return;
    body.isOver = true;
    this.#open.delete(body);
    this.#held.release(body.tenant, body.bytes);
    if (this.#open.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    body.done(error, error === null ? body.filled() : undefined);
    body.forget();
  }

  #endIdleBodies(): void {
    const nowMs = performance.now();
    for (const body of this.#open) {
      if (nowMs - body.movedMs < this.#options.idleMs) continue;
      this.#end(body, new BodyError(408, 'the body of the request did not arrive in time'));
    }
  }
}

/** Initial buffer size for a body of unknown length. */
const FIRST_BYTES = 16 * 1024;

class UnfinishedBody {
  readonly tenant: string;
  readonly maxBytes: number;
  readonly done: Done;
  bytes = 0;
  movedMs = performance.now();
  isOver = false;
  /** A single buffer for all chunks, because a chunk that is kept on its own occupies more than its bytes. */
  #target: Buffer;

  constructor(tenant: string, maxBytes: number, announced: number | null, done: Done) {
    this.tenant = tenant;
    this.maxBytes = maxBytes;
    this.done = done;
    // The kernel commits memory only when it is written, so a large announced length costs nothing yet.
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

  filled(): Buffer {
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
