import type { Worker } from 'node:worker_threads';
import type { QueryResult } from 'kysely';
import { internal, resourceExhausted, type ServiceError, unavailable } from '../../core/error.ts';
import type { DurableWrites, WriteOperation } from './durable.ts';
import { type FromThread, type Order, receiveError, type ToThread } from './write-messages.ts';
import type { WriteOperations } from './write-thread.ts';

/** Most orders that wait for the thread. The limit of durable writes is lower. */
const MAX_WAITING = 20_000;
/**
 * Longer than the thread's own timeout for a flush. Only a thread that is blocked in a call to the disk takes
 * longer.
 */
const ANSWER_TIMEOUT_MS = 40_000;
const LOOK_MS = 1000;

interface PendingOrder {
  readonly sinceMs: number;
  readonly done: (result: never) => void;
  readonly fail: (error: unknown) => void;
}

/**
 * `DurableWrites` that run operations in a separate thread (`write-thread.ts`); also runs single queries
 * there. An order can only name operations that the thread knows.
 *
 * If the thread ends unexpectedly, all waiting and later orders fail with `internal`. An order without an
 * answer after 40 s fails with `unavailable`: the write may exist or not.
 */
export class WriteClient implements DurableWrites {
  readonly #thread: Worker;
  readonly #names: ReadonlyMap<unknown, string>;
  readonly #waiting = new Map<number, PendingOrder>();
  readonly #ended: Promise<void>;
  readonly #watch: NodeJS.Timeout;
  #orders: Order[] = [];
  #lastId = 0;
  #isClosing = false;
  #failure: ServiceError | undefined;
  #refusal: ServiceError | undefined;
  #problem: string | null = null;

  constructor(thread: Worker, operations: WriteOperations) {
    this.#thread = thread;
    this.#names = new Map(Object.entries(operations).map(([name, operation]) => [operation, name]));
    thread.on('message', (message: FromThread) => this.#receive(message));
    this.#watch = setInterval(() => this.#failLate(), LOOK_MS);
    this.#watch.unref();
    let cause: unknown;
    thread.on('error', error => {
      cause = error;
    });
    this.#ended = new Promise(resolve => {
      thread.once('exit', code => {
        clearInterval(this.#watch);
        this.#fail(code, cause);
        resolve();
      });
    });
  }

  async write<A extends readonly unknown[], R>(operation: WriteOperation<A, R>, ...args: A): Promise<R> {
    const name = this.#names.get(operation);
    if (name === undefined) throw new TypeError(`the write thread does not have the operation "${operation.name}"`);
    return await this.#order<R>(id => [id, name, args]);
  }

  /**
   * Runs one query that changes something, in its own transaction. The change survives `kill -9`, but not
   * always a power cut.
   */
  query(sql: string, parameters: readonly unknown[]): Promise<QueryResult<unknown>> {
    return this.#order(id => [id, null, sql, parameters]);
  }

  problem(): string | null {
    return (this.#failure ?? this.#refusal)?.message ?? this.#problem;
  }

  /** Fails every waiting and later order. */
  refuse(problem: string): void {
    this.#refusal = internal(problem);
    for (const { fail } of this.#waiting.values()) fail(this.#refusal);
    this.#waiting.clear();
  }

  /** Waits for accepted orders and for the end of the thread. */
  async close(): Promise<void> {
    if (!this.#isClosing && this.#failure === undefined) {
      this.#isClosing = true;
      this.#send(true);
    }
    await this.#ended;
  }

  #order<R>(orderOf: (id: number) => Order): Promise<R> {
    return new Promise<R>((done, fail) => {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#refusal !== undefined) throw this.#refusal;
      if (this.#isClosing) throw internal('the database is closed');
      if (this.#waiting.size >= MAX_WAITING) {
        throw resourceExhausted(`${MAX_WAITING} writes are waiting for the database`, { retryAfterSeconds: 1 });
      }
      this.#lastId += 1;
      this.#waiting.set(this.#lastId, { sinceMs: performance.now(), done, fail });
      this.#orders.push(orderOf(this.#lastId));
      if (this.#orders.length === 1) setImmediate(() => this.#send());
    });
  }

  #send(isLast = false): void {
    if (this.#orders.length === 0 && !isLast) return;
    const message: ToThread = { orders: this.#orders, isLast };
    this.#orders = [];
    this.#thread.postMessage(message);
  }

  #receive({ outcomes, problem }: FromThread): void {
    this.#problem = problem;
    for (const [id, result, error] of outcomes) {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.done(result as never);
      else waiting?.fail(receiveError(error));
    }
  }

  #failLate(): void {
    const latestMs = performance.now() - ANSWER_TIMEOUT_MS;
    // The map is in order of age, oldest first.
    for (const [id, { sinceMs, fail }] of this.#waiting) {
      if (sinceMs > latestMs) return;
      this.#waiting.delete(id);
      fail(unavailable(`the database did not confirm a write within ${ANSWER_TIMEOUT_MS / 1000} s`));
    }
  }

  #fail(code: number, cause: unknown): void {
    if (this.#isClosing && cause === undefined && this.#waiting.size === 0) return;
    this.#failure = internal('the write thread of the database has ended; restart the service', {
      cause: cause ?? new Error(`it ended with ${code}`),
    });
    for (const { fail } of this.#waiting.values()) fail(this.#failure);
    this.#waiting.clear();
  }
}
