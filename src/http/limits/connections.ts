import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { LIMITS } from '../../core/limits.ts';
import { Counter } from '../../lib/counter.ts';

/** Activity of a connection that has received a request. */
interface Activity {
  /** Number of requests that run or wait. */
  open: number;
  /** Number of requests that wait until the earlier ones are answered. */
  waiting: number;
}

/**
 * Tracks the connections of a server, so that closing the server waits for running requests only.
 * Node would also wait for connections that never sent a request, which browsers and pools open in advance.
 * It would also wait for connections that were busy when the close began.
 */
export class Connections {
  readonly #open = new Set<Socket>();
  /**
   * Read for every request, but changed only per connection.
   * If a weak map keeps changing, every garbage collection scans all of it.
   */
  readonly #activity = new WeakMap<Socket, Activity>();
  readonly #ofAddress = new Counter();
  #closing = false;

  /**
   * `maxOfAddress`: maximum number of connections per remote address (see `addressGroup`).
   * Further connections are closed immediately.
   */
  constructor(server: Server, maxOfAddress: number) {
    server.on('connection', socket => {
      if (this.#closing || !this.#countAddress(socket, maxOfAddress)) {
        socket.destroy();
        return;
      }
      this.#add(socket);
    });
  }

  /**
   * Adds a connection from another replica, which the cluster listener accepted. It counts for no address.
   */
  adopt(socket: Socket): void {
    if (this.#closing) socket.destroy();
    else this.#add(socket);
  }

  #add(socket: Socket): void {
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
  }

  #countAddress(socket: Socket, max: number): boolean {
    const address = addressGroup(socket.remoteAddress);
    if (address === null) return true;
    if (this.#ofAddress.get(address) >= max) return false;
    this.#ofAddress.add(address);
    socket.once('close', () => this.#ofAddress.add(address, -1));
    return true;
  }

  open(): Iterable<Socket> {
    return this.#open;
  }

  get isClosing(): boolean {
    return this.#closing;
  }

  /**
   * Calls `serve` when the earlier requests of the connection are answered, unless the client disconnects.
   * Returns false if too many requests wait or the connection is closed.
   * Node reads on until the body of a waiting request is larger than its buffer.
   */
  queue(socket: Socket, response: ServerResponse, serve: () => void): boolean {
    const activity = this.#activityOf(socket);
    if (socket.destroyed || activity.waiting >= LIMITS.pipelinedRequests) return false;
    activity.waiting += 1;
    activity.open += 1;
    // Node gives a response its socket when its turn comes.
    response.once('socket', () => {
      // Runs after Node's own work to assign the socket.
      process.nextTick(() => {
        activity.waiting -= 1;
        if (!response.destroyed) serve();
        this.requestEnded(socket);
      });
    });
    return true;
  }

  #activityOf(socket: Socket): Activity {
    let activity = this.#activity.get(socket);
    if (activity === undefined) {
      activity = { open: 0, waiting: 0 };
      this.#activity.set(socket, activity);
    }
    return activity;
  }

  /** Counts a request that has arrived. Must be called once per request, like `requestEnded`. */
  requestBegan(socket: Socket): void {
    this.#activityOf(socket).open += 1;
  }

  /** Counts a request whose answer has been written. */
  requestEnded(socket: Socket): void {
    const activity = this.#activity.get(socket);
    if (activity !== undefined) {
      activity.open -= 1;
      if (activity.open > 0) return;
    }
    if (this.#closing && this.#open.has(socket)) socket.destroySoon();
  }

  /** Closes idle connections now, and every other connection as soon as no request runs on it. */
  closeIdle(): void {
    this.#closing = true;
    for (const socket of this.#open) if ((this.#activity.get(socket)?.open ?? 0) <= 0) socket.destroySoon();
  }
}

/**
 * Returns the group of a remote address for counting: the IPv4 address, or the /64 network of an IPv6
 * address.
 * A client with one address of a /64 network usually has all of them.
 * null: loopback, which is this machine or a proxy on it that serves many clients.
 */
export function addressGroup(address: string | undefined): string | null {
  if (address === undefined || address === '::1') return null;
  const ipv4 = /^(?:::ffff:)?(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (ipv4 !== undefined) return ipv4.startsWith('127.') ? null : ipv4;
  const [before = '', after] = (address.split('%')[0] as string).split('::');
  const first = before.split(':').filter(Boolean);
  const last = (after ?? '').split(':').filter(Boolean);
  const zeros = Array.from({ length: Math.max(0, 8 - first.length - last.length) }, () => '0');
  return [...first, ...zeros, ...last].slice(0, 4).join(':');
}

/**
 * Closes a connection after a refused upgrade, when the answer has been written.
 * Node has stopped reading such a connection, so it would accept no further request and stay open forever.
 * `asks` is called for each request that asks for an upgrade, before any other work.
 */
export function endRefusedUpgrades(app: FastifyInstance, asks: (request: IncomingMessage) => void): void {
  const asked = new WeakSet<IncomingMessage>();
  app.server.prependListener('upgrade', request => {
    asked.add(request);
    asks(request);
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    if (asked.has(request.raw)) reply.header('Connection', 'close');
    done(null, payload);
  });
  app.addHook('onResponse', (request, _reply, done) => {
    if (asked.has(request.raw)) request.raw.socket.destroySoon();
    done();
  });
}
