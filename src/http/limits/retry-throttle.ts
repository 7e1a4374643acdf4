import type { Socket } from 'node:net';

/** The shortest `Retry-After` of a refusal. */
const RETRY_AFTER_MS = 1000;
const WAIT_MS = 250;
/**
 * Maximum number of delayed requests. Each holds up to 64 KiB of its body, which arrived in one piece.
 * A further request is refused immediately.
 */
const MAX_WAITING = 1024;

/**
 * Delays clients that retry on the same connection before `Retry-After`, and would be refused again.
 * A refusal costs nearly as much as an answer.
 * Clients that are refused ten times a second would reduce the throughput of all others.
 * Each early retry waits once, and is then served or refused.
 * First requests, and requests that can be served, do not wait.
 */
export class RetryThrottle {
  /**
   * Time of the last refusal per connection.
   * The value is an object, so that the map changes only once per connection.
   */
  readonly #refused = new WeakMap<Socket, { atMs: number }>();
  #waiting = 0;

  noteRefusal(socket: Socket): void {
    const atMs = performance.now();
    const refused = this.#refused.get(socket);
    if (refused === undefined) this.#refused.set(socket, { atMs });
    else refused.atMs = atMs;
  }

  /**
   * Delays an early retry and then calls `then`, which must not throw. Returns false if there is no delay.
   * The delay is at most `leftMs`, the remaining time of the call. There is none when `leftMs` is 0 or less.
   */
  delay(socket: Socket, leftMs: number, then: () => void): boolean {
    const refused = this.#refused.get(socket);
    if (refused === undefined || performance.now() - refused.atMs >= RETRY_AFTER_MS) return false;
    if (leftMs <= 0 || this.#waiting >= MAX_WAITING) return false;
    this.#waiting += 1;
    setTimeout(
      () => {
        this.#waiting -= 1;
        then();
      },
      Math.min(WAIT_MS, leftMs),
    );
    return true;
  }
}
