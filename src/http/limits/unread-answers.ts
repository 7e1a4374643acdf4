import type { Socket } from 'node:net';

export interface UnreadAnswersOptions {
  /** Idle time after which the connection of an unread answer is closed. */
  readonly idleMs: number;
  /** Maximum size of all unread answers together. */
  readonly maxBytes: number;
  /** The connections of the entry. */
  readonly connections: () => Iterable<Socket>;
}

/** Bytes of a connection that the kernel has not accepted, and the time since which it accepts none. */
interface Unread {
  bytes: number;
  /** Bytes in memory. Node frees a write only when the kernel has accepted its last byte. */
  heldBytes: number;
  sinceMs: number;
}

/** Longest interval between checks. */
const LOOK_MS = 500;
/** Idle time after which a connection may be closed when all answers together are too large. */
const STALE_MS = 1000;

/**
 * Closes connections whose clients do not read their answers.
 * A connection is closed after `idleMs`, or earlier when all unread answers together exceed `maxBytes`. The
 * check runs at least twice a second, so an answer that is read immediately costs nothing.
 */
export class UnreadAnswers {
  readonly #options: UnreadAnswersOptions;
  readonly #unread = new Map<Socket, Unread>();
  /** Upgraded connections have their own idle limit. */
  readonly #tunnels = new WeakSet<Socket>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: UnreadAnswersOptions) {
    this.#options = options;
  }

  /** Starts the check, which runs until no connection is open. Must be called for each new connection. */
  start(): void {
    this.#timer ??= setInterval(() => this.check(), Math.min(LOOK_MS, this.#options.idleMs / 2)).unref();
  }

  upgraded(socket: Socket): void {
    this.#tunnels.add(socket);
  }

  /** Checks all connections once. */
  check(): void {
    const nowMs = performance.now();
    let held = 0;
    let open = 0;
    for (const socket of this.#options.connections()) {
      open += 1;
      const bytes = unsentBytes(socket);
      const known = this.#unread.get(socket);
      const heldBytes = socket.writableLength;
      if (heldBytes === 0) {
        if (known !== undefined) this.#unread.delete(socket);
        continue;
      }
      held += heldBytes;
      if (known === undefined) {
        this.#unread.set(socket, { bytes, heldBytes, sinceMs: nowMs });
        continue;
      }
      // A growing backlog is no sign of a reader, but a shrinking one is.
      const hasMoved = known.bytes !== bytes || heldBytes < known.heldBytes;
      known.bytes = bytes;
      known.heldBytes = heldBytes;
      if (hasMoved) known.sinceMs = nowMs;
      else if (nowMs - known.sinceMs >= this.#options.idleMs && !this.#tunnels.has(socket)) {
        held -= this.#end(socket, heldBytes);
      }
    }
    for (const socket of this.#unread.keys()) if (socket.destroyed) this.#unread.delete(socket);
    if (held > this.#options.maxBytes) this.#makeRoom(held, nowMs);
    if (open > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Closes connections whose clients read nothing, the largest answers first, until the rest fits. */
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

/**
 * Returns the bytes that the kernel has not accepted.
 * `writableLength` counts a write as a whole. The handle knows how much of the current write is left.
 */
function unsentBytes(socket: Socket): number {
  const { writableLength } = socket;
  if (writableLength === 0) return 0;
  const { writeQueueSize } = (socket as { _handle?: { writeQueueSize?: number } | null })._handle ?? {};
  return writeQueueSize === undefined || writeQueueSize === 0 ? writableLength : writeQueueSize;
}
