import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket, TlsOptions } from 'node:tls';
import { messageOf } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { JSON_TYPE, refusal } from '../http/answer.ts';
import { markForwarded } from '../http/forwarding.ts';
import { FORWARD_HEADER, type ForwardMark, NOT_HERE_HEADER, NOT_HERE_STATUS, takeMark } from './head.ts';

/**
 * Entry that serves forwarded requests like those of its own callers, without the checks that are already
 * done.
 */
export interface ForwardedEntry {
  readonly server: Server;
  adopt(socket: Socket): void;
}

export type PeerAnswers = (url: string, response: ServerResponse) => boolean;

export interface ClusterListenerOptions {
  readonly tls: TlsOptions;
  readonly nodeId: string;
  readonly version: string;
  readonly entry: ForwardedEntry;
  /**
   * Answers a request that another replica makes for itself. Returns false when nothing exists at the path.
   */
  readonly answer?: PeerAnswers;
  readonly maxConnections: number;
  readonly log: { warn(fields: object, text: string): void };
}

const HANDSHAKE_MS = 5000;
const PROBE_AFTER_MS = 5000;
/** Maximum head: the first replica accepted at most 16 KiB, and this hop adds less. */
const MAX_HEAD_BYTES = 32 * 1024;
const LOG_EVERY_MS = 60_000;

/**
 * Accepts connections of other replicas. Requests are read only after a connection has authenticated itself.
 * Only these requests are marked as forwarded and passed to the entry's server. So no header can make an
 * outside caller look like a replica.
 */
export class ClusterListener {
  readonly #options: ClusterListenerOptions;
  readonly #server: https.Server;
  readonly #open = new Set<TLSSocket>();
  #isDraining = false;
  #silentUntilMs = 0;
  #notLogged = 0;

  constructor(options: ClusterListenerOptions) {
    this.#options = options;
    this.#server = https.createServer({
      ...options.tls,
      handshakeTimeout: HANDSHAKE_MS,
      requireHostHeader: false,
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: LIMITS.headersArrivalMs,
      // The first replica bounds the time of its caller.
      requestTimeout: 0,
      // The other side closes idle connections. So a request never meets a connection that this side is about
      // to close.
      keepAliveTimeout: 0,
    });
    this.#server.maxHeadersCount = 0;
    this.#server.maxConnections = options.maxConnections;
    this.#server.on('secureConnection', socket => this.#accept(socket));
    this.#server.on('tlsClientError', (error, socket) => this.#refused(error, socket));
    this.#server.on('request', (request, response) => this.#request(request, response));
    this.#server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on('clientError', (_error, socket) => socket.destroy());
  }

  /** Begins to listen and returns the port. */
  async listen(host: string, port: number): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    this.#server.on('error', error => this.#options.log.warn({ err: error }, 'cluster listener failed'));
    return (this.#server.address() as AddressInfo).port;
  }

  /**
   * Rejects requests that have not begun, because this replica is about to end; their senders retry them.
   * Running calls continue. Connections stay open, also new ones: after a close it would be unknown whether a
   * request has run.
   */
  drain(): void {
    this.#isDraining = true;
  }

  /** Accepts no more connections. The entry's own close ends the existing ones after their requests. */
  close(): Promise<void> {
    return new Promise(resolve => this.#server.close(() => resolve()));
  }

  /** Accepts no more connections, and closes the existing ones. */
  destroy(): void {
    this.#server.close();
    for (const socket of this.#open) socket.destroy();
  }

  #accept(socket: TLSSocket): void {
    // Same setting as for connections of callers: after an upgrade a side may end its output and still read.
    socket.allowHalfOpen = true;
    socket.setNoDelay(true);
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    this.#options.entry.adopt(socket);
  }

  /** Logs a refused connection at most once a minute, since anyone can connect. */
  #refused(error: Error, socket: TLSSocket): void {
    socket.destroy();
    const nowMs = performance.now();
    if (nowMs < this.#silentUntilMs) {
      this.#notLogged += 1;
      return;
    }
    this.#silentUntilMs = nowMs + LOG_EVERY_MS;
    const fields = {
      from: socket.remoteAddress,
      reason: messageOf(socket.authorizationError ?? error),
      notLogged: this.#notLogged,
    };
    this.#notLogged = 0;
    this.#options.log.warn(
      fields,
      'connection to the cluster listener refused: peer has neither the secret nor a certificate of this cluster',
    );
  }

  #request(request: IncomingMessage, response: ServerResponse): void {
    const mark = takeMark(request);
    if (mark === null) {
      this.#answer(request, response);
      return;
    }
    if (this.#mark(request, mark)) this.#options.entry.server.emit('request', request, response);
    else sendNotHere(response, mark);
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const mark = takeMark(request);
    if (mark !== null && this.#mark(request, mark)) {
      this.#options.entry.server.emit('upgrade', request, socket, head);
      return;
    }
    socket.on('error', () => socket.destroy());
    const status =
      mark === null
        ? '400 Bad Request\r\n'
        : `${NOT_HERE_STATUS} Misdirected Request\r\n${NOT_HERE_HEADER}: ${mark.token}\r\n`;
    socket.end(`HTTP/1.1 ${status}Content-Length: 0\r\nConnection: close\r\n\r\n`);
  }

  /**
   * Marks a request as forwarded. Returns false when it is meant for the replica that had this address
   * before, or when this one is ending.
   */
  #mark(request: IncomingMessage, mark: ForwardMark): boolean {
    if (mark.nodeId !== this.#options.nodeId || this.#isDraining) return false;
    const { tenant, role, untilMs, awaitsContinue } = mark;
    const notHere = (response: ServerResponse) => sendNotHere(response, mark);
    markForwarded(request, { tenant, role, untilMs: untilMs ?? undefined, awaitsContinue, notHere });
    return true;
  }

  /** Answers requests that replicas make for themselves. */
  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { nodeId, version, answer } = this.#options;
    request.resume();
    if (request.method === 'GET' && answer?.(request.url ?? '', response) === true) return;
    const isHealth = request.method === 'GET' && request.url === '/cluster/health';
    const { status, body } = isHealth
      ? { status: 200, body: { status: 'ok', nodeId, version } }
      : refusal(400, `a replica says with the header ${FORWARD_HEADER} for whom it forwards a request`);
    const text = JSON.stringify(body);
    response.writeHead(status, { 'Content-Type': JSON_TYPE, 'Content-Length': Buffer.byteLength(text) }).end(text);
  }
}

function sendNotHere(response: ServerResponse, { token }: ForwardMark): void {
  response.writeHead(NOT_HERE_STATUS, [NOT_HERE_HEADER, token, 'Content-Length', '0']).end();
}
