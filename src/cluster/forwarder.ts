import { randomBytes } from 'node:crypto';
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { messageOf, ServiceError, unavailable } from '../core/error.ts';
import { FORWARD_WAIT_MS, type Outgoing, type PeerAddress, type Sender } from '../http/forwarding.ts';
import { pause } from '../lib/backoff.ts';
import type { AnswerSink } from './answer-reader.ts';
import { AnswerHead, type ForwardMark, NOT_HERE_STATUS, requestHead, requestText } from './head.ts';
import { PeerConnection } from './peer-connection.ts';
import type { Peers } from './peers.ts';

export type ForwardResult = 'answered' | 'broken' | 'caller_left' | 'not_here' | 'unreachable';

export interface ForwardMetrics {
  forwarded(result: ForwardResult): void;
  /** Records the time from sending a request to the head of its answer. */
  hop(seconds: number): void;
}

/** Maximum announced size of an answer that is written as a whole, as the other replica wrote it. */
const SMALL_ANSWER_BYTES = 16 * 1024;
/**
 * Empty chunk that makes Node send a head without body bytes. Node's own way writes the head as UTF-8, and so
 * re-encodes all non-ASCII characters with each hop.
 */
const HEAD_ONLY = Buffer.alloc(0);
const RETRY = { retryAfterSeconds: 1 } as const;
const PAUSE_MS = 50;

/**
 * Forwards requests to the replicas that own their resources, and returns the answers as streams. Applies
 * backpressure in both directions, and passes on the end of a caller or a connection. Sends a request again
 * only if nothing of it can have run.
 */
export class Forwarder implements Sender {
  readonly #peers: Peers;
  readonly #metrics: ForwardMetrics;
  readonly #waitMs: number;
  /** Token that marks an answer "not here" of another replica. Only replicas see it. */
  readonly #token = randomBytes(18).toString('base64url');

  /** Creates a forwarder. `waitMs` is how long a request is retried that no replica has taken. */
  constructor(peers: Peers, metrics: ForwardMetrics, waitMs = FORWARD_WAIT_MS) {
    this.#peers = peers;
    this.#metrics = metrics;
    this.#waitMs = waitMs;
  }

  send(target: PeerAddress, outgoing: Outgoing): void {
    const means = { peers: this.#peers, metrics: this.#metrics, token: this.#token, waitMs: this.#waitMs };
    new ForwardedRequest(target, outgoing, means).start();
  }
}

interface Means {
  readonly peers: Peers;
  readonly metrics: ForwardMetrics;
  readonly token: string;
  readonly waitMs: number;
}

/** Source of an answer. */
interface AnswerSource {
  pause(): unknown;
  resume(): unknown;
  destroy(): unknown;
}

/**
 * Forwards one request and its answer. A complete request uses a `PeerConnection`. A stream or an upgrade
 * uses the HTTP client of Node.
 */
class ForwardedRequest implements AnswerSink {
  readonly #outgoing: Outgoing;
  readonly #means: Means;
  readonly #startMs = performance.now();
  #target: PeerAddress;
  /** Null: no replica has the request. */
  #source: AnswerSource | null = null;
  /** Request of Node's client that `#source` answers; null: the request used an own connection. */
  #inner: ClientRequest | null = null;
  /** True once the body is being sent. */
  #isStreaming = false;
  /** Head of a small answer, which is kept until the answer is complete. */
  #kept: AnswerHead | null = null;
  #chunks: Buffer[] = [];
  #isPaused = false;
  #isNotHere = false;
  #isAnswered = false;
  #isOver = false;

  constructor(target: PeerAddress, outgoing: Outgoing, means: Means) {
    this.#target = target;
    this.#outgoing = outgoing;
    this.#means = means;
  }

  start(): void {
    const { response } = this.#outgoing;
    if (response.destroyed || response.socket?.destroyed === true) {
      this.#over('caller_left');
      return;
    }
    response.once('close', () => {
      if (response.writableFinished) return;
      this.#over('caller_left');
      this.#leave();
    });
    this.#try();
  }

  #try(): void {
    const { body, upgradeHead } = this.#outgoing;
    try {
      if (body === 'stream' || upgradeHead !== null) this.#askByNode(body);
      else this.#ask(body === 'none' ? null : body);
    } catch (error) {
      this.#fail(error instanceof ServiceError ? error : this.#unreachable(error), 'unreachable');
    }
  }

  #mark(): ForwardMark {
    const { tenant, role, admittedUntilMs: untilMs, body } = this.#outgoing;
    const { token } = this.#means;
    return { token, nodeId: this.#target.nodeId, tenant, role, untilMs, awaitsContinue: body === 'stream' };
  }

  #ask(body: Buffer | null): void {
    const text = requestText(this.#outgoing, this.#mark());
    const connection = this.#means.peers.acquire(this.#target.address);
    this.#source = connection;
    this.#isNotHere = false;
    connection.ask(text, body, this.#outgoing.raw.method === 'HEAD', this);
  }

  #askByNode(body: Outgoing['body']): void {
    const { raw, upgradeHead } = this.#outgoing;
    const asked = {
      method: raw.method ?? 'GET',
      path: raw.url ?? '/',
      headers: requestHead(this.#outgoing, this.#mark()),
    };
    const inner = this.#means.peers.request(this.#target.address, asked);
    // After a refused upgrade the connection takes no further requests.
    if (upgradeHead !== null) inner.shouldKeepAlive = false;
    this.#inner = inner;
    inner.on('error', error => this.#brokeByNode(inner, error));
    inner.once('close', () => this.#brokeByNode(inner, new Error('it closed the connection')));
    inner.once('response', answer => this.#answerByNode(inner, answer));
    inner.once('upgrade', (answer, socket, head) => this.#upgrade(answer, socket, head));
    if (body === 'stream') {
      inner.once('continue', () => this.#stream(inner));
      // The other side decides from the head alone.
      inner.write(HEAD_ONLY);
    } else inner.end();
  }

  #stream(inner: ClientRequest): void {
    const { raw } = this.#outgoing;
    this.#isStreaming = true;
    raw.once('close', () => {
      if (!raw.complete) inner.destroy();
    });
    raw.once('end', () => {
      const trailers = pairsOf(raw.rawTrailers);
      if (trailers.length > 0) inner.addTrailers(trailers);
      inner.end();
    });
    raw.pipe(inner, { end: false });
  }

  #brokeByNode(inner: ClientRequest, error: Error): void {
    // After a complete answer an error has no meaning. An answer that is cut short reports the error itself.
    if (inner !== this.#inner || this.#source !== null) return;
    this.#lost(error, this.#means.peers.wasSent(inner));
  }

  #answerByNode(inner: ClientRequest, answer: IncomingMessage): void {
    if (this.#isOver) {
      answer.destroy();
      return;
    }
    const head = AnswerHead.of(answer);
    if (this.#isFromElsewhere(head)) {
      answer.resume();
      // The connection still waits for the body, which is not sent.
      if (!inner.writableEnded) inner.destroy();
      this.#tryElsewhere(new Error('it does not have it'), 'not_here');
      return;
    }
    this.#source = answer;
    answer.on('data', (chunk: Buffer) => this.data(chunk));
    answer.once('end', () => {
      if (answer.complete) this.end(answer.rawTrailers);
    });
    const cut = () => {
      if (!answer.complete) this.broke(new Error('its answer was cut short'));
    };
    answer.once('close', cut);
    answer.on('error', cut);
    this.head(head);
  }

  /** Called when the connection failed or ended, or when its bytes were no valid answer. */
  broke(error: Error): void {
    const source = this.#source;
    this.#lost(error, !isConnection(source) || source.isConnected);
  }

  #lost(error: Error, wasSent: boolean): void {
    if (this.#isOver) return;
    if (this.#isAnswered) {
      this.#over('broken');
      this.#outgoing.response.destroy();
    } else if (wasSent) this.#fail(this.#brokeOff(error), 'broken');
    else this.#tryElsewhere(error, 'unreachable');
  }

  /** Retries after an attempt of which nothing has run. */
  #tryElsewhere(cause: Error, result: 'not_here' | 'unreachable'): void {
    const inner = this.#inner;
    this.#inner = null;
    this.#source = null;
    inner?.destroy();
    // Waits for a replica that restarts, or for a shard that is being transferred.
    if (performance.now() - this.#startMs > this.#means.waitMs) {
      this.#fail(this.#unreachable(cause), result);
      return;
    }
    this.#means.metrics.forwarded(result);
    pause(PAUSE_MS)
      .then(() => this.#outgoing.refresh())
      .then(
        target => {
          if (this.#isOver) return;
          this.#target = target;
          this.#try();
        },
        (error: unknown) => this.#fail(error instanceof ServiceError ? error : this.#unreachable(error), result),
      );
  }

  #isFromElsewhere(head: AnswerHead): boolean {
    return head.status === NOT_HERE_STATUS && head.notHere === this.#means.token;
  }

  head(head: AnswerHead): void {
    if (this.#isOver) return;
    if (this.#isFromElsewhere(head)) {
      this.#isNotHere = true;
      return;
    }
    this.#means.metrics.hop((performance.now() - this.#startMs) / 1000);
    const { length } = head;
    if (this.#outgoing.raw.method !== 'HEAD' && length !== undefined && Number(length) <= SMALL_ANSWER_BYTES) {
      this.#kept = head;
      return;
    }
    this.#writeHead(head);
    // A client that follows a log sees the connection before the first line.
    this.#outgoing.response.write(HEAD_ONLY);
  }

  data(chunk: Buffer): void {
    if (this.#isOver || this.#isNotHere) return;
    if (this.#kept !== null) {
      this.#chunks.push(chunk);
      return;
    }
    const { response } = this.#outgoing;
    const source = this.#source;
    // Several chunks arrive together from the same bytes of the connection.
    if (response.write(chunk) || source === null || this.#isPaused) return;
    this.#isPaused = true;
    source.pause();
    response.once('drain', () => {
      this.#isPaused = false;
      // The connection may serve another request by now.
      if (this.#source === source) source.resume();
    });
  }

  end(trailers: readonly string[]): void {
    this.#source = null;
    if (this.#isOver) return;
    if (this.#isNotHere) {
      this.#tryElsewhere(new Error('it does not have it'), 'not_here');
      return;
    }
    const { response } = this.#outgoing;
    const kept = this.#kept;
    if (kept === null) {
      const pairs = pairsOf(trailers);
      if (pairs.length > 0) response.addTrailers(pairs);
      this.#endBody();
      response.end();
    } else {
      this.#writeHead(kept);
      this.#endBody();
      const [first, second] = this.#chunks;
      // Written with the head in one piece: a string of these bytes costs less than a second write.
      const whole = second === undefined ? first : Buffer.concat(this.#chunks);
      if (whole === undefined) response.end();
      else response.end(whole.toString('latin1'), 'latin1');
    }
    this.#over('answered');
  }

  #writeHead(head: AnswerHead): void {
    const { raw, response, begin, upgradeHead } = this.#outgoing;
    const { status, reason } = head;
    const hasTrailers =
      raw.method !== 'HEAD' &&
      raw.httpVersion === '1.1' &&
      head.length === undefined &&
      status !== 204 &&
      status !== 304;
    const sent = head.sent(hasTrailers);
    // A side that stops reading a body closes its connection. After a refused upgrade the socket takes no
    // further requests.
    if ((head.isClosing && !raw.complete) || upgradeHead !== null) sent.push('Connection', 'close');
    else if (head.hasUpgrade) sent.push('Connection', 'Upgrade');
    this.#isAnswered = true;
    begin();
    response.sendDate = !head.hasDate;
    response.writeHead(status, reason, sent);
  }

  /**
   * Reads and drops the rest of the body when the answer is complete. The caller can then read the answer.
   */
  #endBody(): void {
    const inner = this.#inner;
    if (inner === null || inner.writableEnded) return;
    const { raw } = this.#outgoing;
    raw.unpipe(inner);
    raw.resume();
    inner.destroy();
  }

  /** Ends the request after the caller has left. */
  #leave(): void {
    this.#inner?.destroy();
    this.#source?.destroy();
  }

  /** Connects both sockets after an upgrade. Their bytes are not parsed any more. */
  #upgrade(answer: IncomingMessage, inner: Socket, head: Buffer): void {
    const { raw, response, upgradeHead, begin } = this.#outgoing;
    const { socket } = raw;
    this.#isAnswered = true;
    if (this.#isOver || upgradeHead === null) {
      inner.destroy();
      if (!this.#isOver) this.#fail(this.#brokeOff(new Error('it changed the protocol unasked')), 'broken');
      return;
    }
    this.#means.metrics.hop((performance.now() - this.#startMs) / 1000);
    begin();
    const { statusCode = 101, statusMessage = '', rawHeaders } = answer;
    // For the access log and the metrics; the head is written below.
    response.statusCode = statusCode;
    const lines = pairsOf(rawHeaders).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`HTTP/1.1 ${statusCode} ${statusMessage}\r\n${lines.join('')}\r\n`, 'latin1');
    if (head.length > 0) socket.write(head);
    if (upgradeHead.length > 0) inner.write(upgradeHead);
    this.#over('answered');
    join(socket, inner);
  }

  #fail(error: ServiceError, result: ForwardResult): void {
    if (this.#isOver) return;
    this.#over(result);
    const { raw, body, fail } = this.#outgoing;
    if (body === 'stream') {
      if (this.#isStreaming && this.#inner !== null) raw.unpipe(this.#inner);
      raw.resume();
    }
    fail(error);
  }

  #over(result: ForwardResult): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#means.metrics.forwarded(result);
  }

  #unreachable(cause: unknown): ServiceError {
    const { nodeId } = this.#target;
    return unavailable(`replica ${nodeId} cannot be reached: ${messageOf(cause)}`, { cause, ...RETRY });
  }

  #brokeOff(cause: Error): ServiceError {
    const { nodeId } = this.#target;
    const text = `replica ${nodeId} closed the connection before it answered (${messageOf(cause)}): whether the request was carried out is not known`;
    return unavailable(text, { cause, ...RETRY });
  }
}

function isConnection(source: AnswerSource | null): source is PeerConnection {
  return source instanceof PeerConnection;
}

/** Pipes bytes both ways with backpressure, until both sides have ended or one breaks. */
function join(socket: Socket, inner: Socket): void {
  inner.setTimeout(0);
  // One side may end its output and still read, as without a replica in between.
  inner.allowHalfOpen = true;
  inner.setNoDelay(true);
  socket.on('error', () => inner.destroy());
  inner.on('error', () => socket.destroy());
  socket.once('close', () => inner.destroy());
  inner.once('close', () => socket.destroySoon());
  socket.pipe(inner);
  inner.pipe(socket);
}

function pairsOf(flat: readonly string[]): [string, string][] {
  const found: [string, string][] = [];
  for (let at = 0; at < flat.length; at += 2) found.push([flat[at] as string, flat[at + 1] as string]);
  return found;
}
