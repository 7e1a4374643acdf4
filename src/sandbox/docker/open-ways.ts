import { resourceExhausted, unavailable } from '../../core/error.ts';
import type { AccessConnection } from '../host/access-connection.ts';

/** Open in one container at a time; what a sandbox with an init of ours has too. */
const MOST = { dial: 256, files: 64 } as const;
const WHAT = { dial: 'connections to ports', files: 'files and directories' } as const;

type EnteringWay = keyof typeof MOST;

interface Open {
  readonly counts: Record<EnteringWay, number>;
  readonly connections: Set<AccessConnection>;
  hasEnded: boolean;
}

/**
 * The open ways into containers through the helper of `Entrance`. Whoever serves it is no process of the container, so the kernel does not end
 * it with the container, and does not count it to the container: both is done here.
 */
export class OpenWays {
  readonly #wait: (container: string) => Promise<unknown>;
  /** By container, from its first way on until its end. */
  readonly #containers = new Map<string, Open>();

  /** `wait` settles when the container has ended. */
  constructor(wait: (container: string) => Promise<unknown>) {
    this.#wait = wait;
  }

  /** Opens one more; fails with `resource_exhausted` when there are too many. When the container ends its connection is destroyed. */
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
    // It ended while this was being opened.
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
    // Where the daemon cannot say when, the next way asks again.
    this.#wait(container).then(hasEnded, forget);
    return made;
  }
}

function end(connection: AccessConnection): void {
  connection.socket.destroy(unavailable('the sandbox ended'));
}
