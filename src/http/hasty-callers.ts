import type { Socket } from 'node:net';

/** The shortest `Retry-After` of a refusal. */
const RETRY_AFTER_MS = 1000;
const WAIT_MS = 250;
/** How many wait at a time, each with the 64 KiB of its body at most that came in one piece. The next one is refused at once. */
const MAX_WAITING = 1024;

/**
 * Callers that come again on their connection sooner than `Retry-After` says, only to be refused again. A refusal costs nearly what an
 * answer costs, so those who are refused ten times a second take from the throughput of all who are served. Each of their requests waits
 * once, and is then served or refused. Nobody else waits: not a first request, and none that can be served.
 */
export class HastyCallers {
  /** When each was refused last. A number of its own for each, so that the weak set changes as seldom as connections do. */
  readonly #refused = new WeakMap<Socket, { atMs: number }>();
  #waiting = 0;

  refused(socket: Socket): void {
    const atMs = performance.now();
    const refused = this.#refused.get(socket);
    if (refused === undefined) this.#refused.set(socket, { atMs });
    else refused.atMs = atMs;
  }

  /**
   * True: it is one of them, and `then`, which must not throw, is called when it has waited: for `leftMs` at most, the time of its call, and not at
   * all when that is none.
   */
  letWait(socket: Socket, leftMs: number, then: () => void): boolean {
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
