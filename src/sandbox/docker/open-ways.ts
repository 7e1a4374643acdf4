import { resourceExhausted, unavailable } from '../../core/error.ts';
import type { AccessConnection } from '../host/access-connection.ts';

/** Limits on open connections per container; sandboxes with Rookery's own init have the same limits. */
const MOST = { dial: 256, files: 64 } as const;
const WHAT = { dial: 'connections to ports', files: 'files and directories' } as const;

type EnteringWay = keyof typeof MOST;

interface Open {
  readonly counts: Record<EnteringWay, number>;
  readonly connections: Set<AccessConnection>;
  hasEnded: boolean;
}

/**
 * Counts and ends the connections into containers that the helper of `Entrance` serves. The serving process
 * is not part of the container. So the kernel neither ends it with the container nor counts it against the
 * container's limits.
 */
export class OpenWays {
  readonly #wait: (container: string) => Promise<unknown>;
  /** Container → connections, from its first connection until its end. */
  readonly #containers = new Map<string, Open>();

  /** `wait` settles when the container has ended. */
  constructor(wait: (container: string) => Promise<unknown>) {
    this.#wait = wait;
  }

  /**
   * Opens a connection and destroys it when the container ends. Fails with `resource_exhausted` when the
   * container has too many.
   */
  async add(container: string, way: EnteringWay, open: () => Promise<AccessConnection>): Promise<AccessConnection> {
    const of = this.#of(container);
    const most = MOST[way];
    if (of.counts[way] >= most) {
      throw resourceExhausted(`too many ${WHAT[way]} are open in this sandbox (${most})`);
    }
    of.counts[way] += 1;
    const leave = () => {
      of.counts[way] -= 1;
    };
    let connection: AccessConnection;
    try {
      connection = await open();
    } catch (error) {
      leave();
      throw error;
    }
    const { socket } = connection;
    of.connections.add(connection);
    const close = () => {
      of.connections.delete(connection);
      leave();
    };
    if (socket.closed) close();
    else socket.once('close', close);
    // The container ended while the connection was opening.
    if (of.hasEnded) end(connection);
    return connection;
  }

  #of(container: string): Open {
    const known = this.#containers.get(container);
    if (known !== undefined) return known;
    const made: Open = { counts: { dial: 0, files: 0 }, connections: new Set(), hasEnded: false };
    this.#containers.set(container, made);
    const forget = () => {
      if (this.#containers.get(container) === made) this.#containers.delete(container);
    };
    const hasEnded = () => {
      forget();
      made.hasEnded = true;
      for (const connection of made.connections) end(connection);
    };
    // If the daemon cannot report the end, the next connection waits again.
    this.#wait(container).then(hasEnded, forget);
    return made;
  }
}

function end(connection: AccessConnection): void {
  connection.socket.destroy(unavailable('the sandbox ended'));
}
