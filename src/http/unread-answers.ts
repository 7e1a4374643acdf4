import type { Socket } from 'node:net';

export interface UnreadAnswersOptions {
  /** The connection of an answer ends when its reader takes nothing for so long. */
  readonly idleMs: number;
  /** Of all answers that wait for their readers, together. */
  readonly maxBytes: number;
  /** The connections of the entry. */
  readonly connections: () => Iterable<Socket>;
  /** Of answers that wait behind others of their connection, which has none of their bytes yet. */
  readonly queuedBytes: (socket: Socket) => number;
}

/** Bytes that are not with the kernel yet, and since when it takes none of them for the reader. */
interface Unread {
  /** Of the answer whose turn it is; 0: all others wait for it. */
  bytes: number;
  /** In memory for all of them: Node lets go of a write when the last byte of it is taken, and not before. */
  heldBytes: number;
  sinceMs: number;
}

const LOOK_MS = 500;
/** When all answers together are too large, a reader that took nothing for so long loses its connection. */
const STALE_MS = 1000;

/**
 * Ends connections whose callers do not read their answers: after `idleMs`, and earlier when all such answers together hold more than
 * `maxBytes`. It looks at the connections twice a second, so an answer that is read at once costs nothing.
 */
export class UnreadAnswers {
  readonly #options: UnreadAnswersOptions;
  readonly #unread = new Map<Socket, Unread>();
  /** Upgraded connections have a bound of their own for silence. */
  readonly #tunnels = new WeakSet<Socket>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: UnreadAnswersOptions) {
    this.#options = options;
  }

  /** Looks from now on, until there is no connection. To be called with each new one. */
  start(): void {
    this.#timer ??= setInterval(() => this.look(), LOOK_MS).unref();
  }

  upgraded(socket: Socket): void {
    this.#tunnels.add(socket);
  }

  /** Once, now. */
  look(): void {
    const nowMs = performance.now();
    let held = 0;
    let open = 0;
    for (const socket of this.#options.connections()) {
      open += 1;
      const bytes = unsentBytes(socket);
      const known = this.#unread.get(socket);
      const heldBytes = socket.writableLength + this.#options.queuedBytes(socket);
      if (heldBytes === 0) {
        if (known !== undefined) this.#unread.delete(socket);
        continue;
      }
      held += heldBytes;
      if (known === undefined) {
        this.#unread.set(socket, { bytes, heldBytes, sinceMs: nowMs });
        continue;
      }
      // More that waits is no sign of a reader, less of it is.
      const hasMoved = known.bytes !== bytes || heldBytes < known.heldBytes;
      known.bytes = bytes;
      known.heldBytes = heldBytes;
      if (hasMoved) known.sinceMs = nowMs;
      // A reader who has all that could be written waits for a call, which may take its time.
      else if (bytes > 0 && nowMs - known.sinceMs >= this.#options.idleMs && !this.#tunnels.has(socket)) {
        held -= this.#end(socket, heldBytes);
      }
    }
    for (const socket of this.#unread.keys()) if (socket.destroyed) this.#unread.delete(socket);
    if (held > this.#options.maxBytes) this.#makeRoom(held, nowMs);
    if (open > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Ends connections whose readers take nothing, the largest answers first, until the rest fits. */
  #makeRoom(held: number, nowMs: number): void {
    let left = held;
    const largestFirst = [...this.#unread].sort(([, one], [, other]) => other.heldBytes - one.heldBytes);
    for (const [socket, { heldBytes, sinceMs }] of largestFirst) {
      if (left <= this.#options.maxBytes) return;
      if (nowMs - sinceMs >= STALE_MS) left -= this.#end(socket, heldBytes);
    }
  }

  #end(socket: Socket, heldBytes: number): number {
    this.#unread.delete(socket);
    socket.destroy();
    return heldBytes;
  }
}

/** Bytes that are not with the kernel yet. Node counts a write as a whole; its handle knows what is left of the one that runs. */
function unsentBytes(socket: Socket): number {
  const { writableLength } = socket;
  if (writableLength === 0) return 0;
  const { writeQueueSize } = (socket as { _handle?: { writeQueueSize?: number } | null })._handle ?? {};
  return writeQueueSize === undefined || writeQueueSize === 0 ? writableLength : writeQueueSize;
}
