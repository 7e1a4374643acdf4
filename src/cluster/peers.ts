import http, { type ClientRequestArgs } from 'node:http';
import { text } from 'node:stream/consumers';
import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import { messageOf, type ServiceError, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { PeerConnection } from './peer-connection.ts';

/** Maximum number of idle connections per replica. */
const MAX_IDLE = 256;
const IDLE_MS = 60_000;
const LOOK_MS = 10_000;
/**
 * Idle time before TCP probes detect a machine that vanished, unless the cluster reports its death first
 * (`drop`).
 */
const PROBE_AFTER_MS = 5000;
/** Maximum head of an answer: that of an answer from a sandbox, plus the headers that the service adds. */
const MAX_HEAD_BYTES = LIMITS.passHeadBytes + 16 * 1024;

/**
 * Keeps the connections to other replicas open: one request at a time on each, with a maximum per replica.
 * Complete requests use own connections (`take`). Streams and upgrades use Node's client (`request`).
 */
export class Peers {
  readonly #tls: ConnectionOptions;
  readonly #agent: http.Agent;
  /** Idle connections per address; the last used is last. */
  readonly #free = new Map<string, PeerConnection[]>();
  #looks: NodeJS.Timeout | undefined;
  readonly #open = new Map<string, Set<TLSSocket>>();
  readonly #connected = new WeakSet<object>();

  constructor(options: ConnectionOptions) {
    this.#tls = options;
    this.#agent = new http.Agent({ keepAlive: true, maxFreeSockets: MAX_IDLE, timeout: IDLE_MS, scheduling: 'lifo' });
    (this.#agent as unknown as { createConnection: unknown }).createConnection = (to: ClientRequestArgs) =>
      this.#connect(String(to.host), Number(to.port));
  }

  /** Number of connections to all replicas, idle ones included. */
  get openConnections(): number {
    let open = 0;
    for (const sockets of this.#open.values()) open += sockets.size;
    return open;
  }

  /** Returns a connection for one request. Fails with `unavailable` when too many are open. */
  acquire(address: string): PeerConnection {
    const free = this.#free.get(address);
    for (let connection = free?.pop(); connection !== undefined; connection = free?.pop()) {
      if (connection.isFree) return connection;
    }
    const { host, port } = splitAddress(address);
    if (this.#isFull(address)) {
      const [idle] = this.#agent.freeSockets[this.#agent.getName({ host, port })] ?? [];
      if (idle === undefined) throw tooMany();
      idle.destroy();
    }
    return new PeerConnection(address, this.#connect(host, port), MAX_HEAD_BYTES, {
      free: connection => this.#putBack(connection),
      closed: connection => this.#forget(connection),
    });
  }

  /** Starts a request, whose events report the outcome. Fails with `unavailable` when too many are open. */
  request(address: string, asked: { method: string; path: string; headers: readonly string[] }): http.ClientRequest {
    const { host, port } = splitAddress(address);
    if (this.#isFull(address) && !this.#hasFree(host, port)) {
      const idle = this.#free.get(address)?.shift();
      if (idle === undefined) throw tooMany();
      idle.destroy();
    }
    const { method, path, headers } = asked;
    const agent = this.#agent;
    const request = http.request({ agent, host, port, method, path, headers, maxHeaderSize: MAX_HEAD_BYTES });
    // Removes Node's limit, above which it drops headers silently. The maximum size of a head already bounds
    // their number.
    request.maxHeadersCount = 0;
    return request;
  }

  /** Returns true if some part of a request may have been sent. */
  wasSent({ socket }: http.ClientRequest): boolean {
    return socket !== null && this.#connected.has(socket);
  }

  /**
   * Returns the answer of a replica's cluster listener at a path as a stream. Fails with `unavailable`, also
   * when its head takes longer than `timeoutMs`.
   */
  async open(address: string, path: string, timeoutMs: number): Promise<http.IncomingMessage> {
    try {
      const request = this.request(address, { method: 'GET', path, headers: ['Host', address] });
      const late = setTimeout(() => request.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
      const answer = await new Promise<http.IncomingMessage>((resolve, reject) => {
        request.once('response', resolve).once('error', reject).end();
      }).finally(() => clearTimeout(late));
      if (answer.statusCode === 200) return answer;
      answer.destroy();
      throw new Error(`it answers ${answer.statusCode}`);
    } catch (error) {
      throw unavailable(`the replica at ${address} does not answer: ${messageOf(error)}`, { cause: error });
    }
  }

  /**
   * Returns the parsed JSON of an answer like that of `open`. Head and body may take `timeoutMs` each. Fails
   * with `unavailable`.
   */
  async read(address: string, path: string, timeoutMs: number): Promise<unknown> {
    const answer = await this.open(address, path, timeoutMs);
    const late = setTimeout(() => answer.destroy(new Error(`no whole answer within ${timeoutMs} ms`)), timeoutMs);
    try {
      return JSON.parse(await text(answer));
    } catch (error) {
      throw unavailable(`the replica at ${address} does not answer: ${messageOf(error)}`, { cause: error });
    } finally {
      clearTimeout(late);
    }
  }

  /** Closes all connections to a dead replica, so that its open requests fail now. */
  drop(address: string): void {
    for (const socket of this.#open.get(address) ?? []) socket.destroy();
  }

  close(): void {
    for (const address of [...this.#open.keys()]) this.drop(address);
    this.#agent.destroy();
    clearInterval(this.#looks);
  }

  #isFull(address: string): boolean {
    return (this.#open.get(address)?.size ?? 0) >= LIMITS.peerConnections;
  }

  #putBack(connection: PeerConnection): void {
    let free = this.#free.get(connection.address);
    if (free === undefined) {
      free = [];
      this.#free.set(connection.address, free);
    }
    if (free.length >= MAX_IDLE) {
      connection.destroy();
      return;
    }
    connection.freeMs = performance.now();
    free.push(connection);
    this.#looks ??= setInterval(() => this.#closeIdle(), LOOK_MS).unref();
  }

  #forget(connection: PeerConnection): void {
    const free = this.#free.get(connection.address);
    const at = free?.indexOf(connection) ?? -1;
    if (at !== -1) free?.splice(at, 1);
    if (free?.length === 0) this.#free.delete(connection.address);
  }

  #closeIdle(): void {
    const sinceMs = performance.now() - IDLE_MS;
    for (const free of this.#free.values()) {
      for (const connection of free.filter(({ freeMs }) => freeMs < sinceMs)) connection.destroy();
    }
    if (this.#free.size > 0) return;
    clearInterval(this.#looks);
    this.#looks = undefined;
  }

  #hasFree(host: string, port: number): boolean {
    return (this.#agent.freeSockets[this.#agent.getName({ host, port })]?.length ?? 0) > 0;
  }

  #connect(host: string, port: number): TLSSocket {
    const socket = tls.connect({ ...this.#tls, host, port });
    socket.setNoDelay(true);
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    const late = setTimeout(
      () => socket.destroy(new Error(`no connection within ${LIMITS.peerConnectMs / 1000} s`)),
      LIMITS.peerConnectMs,
    );
    const address = joinAddress(host, port);
    let sockets = this.#open.get(address);
    if (sockets === undefined) {
      sockets = new Set();
      this.#open.set(address, sockets);
    }
    sockets.add(socket);
    socket.once('secureConnect', () => {
      clearTimeout(late);
      this.#connected.add(socket);
    });
    socket.once('close', () => {
      clearTimeout(late);
      sockets.delete(socket);
      if (sockets.size === 0 && this.#open.get(address) === sockets) this.#open.delete(address);
    });
    return socket;
  }
}

function tooMany(): ServiceError {
  return unavailable('too many requests are being forwarded, try again later', { retryAfterSeconds: 1 });
}

/** Splits `host:port`; an IPv6 address is in brackets. */
export function splitAddress(address: string): { readonly host: string; readonly port: number } {
  const colon = address.lastIndexOf(':');
  return { host: address.slice(0, colon).replace(/^\[(.*)\]$/, '$1'), port: Number(address.slice(colon + 1)) };
}

function joinAddress(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
