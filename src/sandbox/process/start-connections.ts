import { FrameSocket } from '../host/frame-socket.ts';
import type { Zygote } from './zygotes.ts';

/**
 * Delay between a start and opening the next start's connection. The new instance loads its code and answers
 * a call in this time.
 */
const RESERVE_MS = 20;

/**
 * Connections over which starts are requested.
 * The connection of a zygote's next usual start is opened in advance, with a waiting worker at its other end.
 * Opening it during the create would cost a twentieth of the create's time.
 */
export class StartConnections {
  /** Open connections by zygote name. */
  readonly #reserved = new Map<string, FrameSocket>();
  /** Timers of connections to be opened, by zygote name. */
  readonly #timers = new Map<string, NodeJS.Timeout>();
  #isClosed = false;

  /**
   * Returns a connection for exclusive use; null when the zygote does not answer.
   * The connection may end without an answer if its worker has ended meanwhile.
   */
  async connect(zygote: Zygote, kind: 'usual' | 'own' | 'none'): Promise<FrameSocket | null> {
    if (kind === 'usual') {
      const reserved = this.#reserved.get(zygote.name);
      this.#reserved.delete(zygote.name);
      if (reserved !== undefined && !reserved.isEnded) return reserved;
    }
    return await connect(zygote.startSockets[kind]);
  }

  /** Opens the next usual start's connection after `RESERVE_MS`, unless one is open or scheduled. */
  reserve(zygote: Zygote): void {
    const { name } = zygote;
    if (this.#isClosed || this.#timers.has(name)) return;
    const timer = setTimeout(() => {
      void this.#open(zygote).finally(() => this.#timers.delete(name));
    }, RESERVE_MS);
    this.#timers.set(name, timer.unref());
  }

  close(): void {
    this.#isClosed = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    for (const connection of this.#reserved.values()) connection.close();
    this.#reserved.clear();
  }

  async #open({ name, startSockets }: Zygote): Promise<void> {
    if (this.#reserved.get(name)?.isEnded === false) return;
    const connection = await connect(startSockets.later);
    if (connection === null) return;
    if (this.#isClosed) {
      connection.close();
      return;
    }
    connection.unref();
    this.#reserved.set(name, connection);
  }
}

async function connect(path: string): Promise<FrameSocket | null> {
  return await FrameSocket.connect(path).catch(() => null);
}
