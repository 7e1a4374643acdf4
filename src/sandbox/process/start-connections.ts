import { FrameSocket } from '../host/frame-socket.ts';
import type { Zygote } from './zygotes.ts';

/** How long after a start the connection of the next one is opened: what was started loads its code and answers a call meanwhile. */
const RESERVE_MS = 20;

/**
 * Connections over which starts are asked for. That of the next usual start of a zygote is open before anybody asks for it, with a worker that
 * waits at its other end: opening it, and the zygote's part, are a twentieth of a create.
 */
export class StartConnections {
  /** By the zygote's name. */
  readonly #reserved = new Map<string, FrameSocket>();
  /** Zygotes of which one will be opened. */
  readonly #timers = new Map<string, NodeJS.Timeout>();
  #isClosed = false;

  /** One that nobody else has; null when the zygote does not answer. It may end without an answer when its worker has ended meanwhile. */
  async take(zygote: Zygote, kind: 'usual' | 'own' | 'none'): Promise<FrameSocket | null> {
    if (kind === 'usual') {
      const reserved = this.#reserved.get(zygote.name);
      this.#reserved.delete(zygote.name);
      if (reserved !== undefined && !reserved.isEnded) return reserved;
    }
    return await connect(zygote.startSockets[kind]);
  }

  /** Opens that of the next usual start soon, unless there is one. */
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
