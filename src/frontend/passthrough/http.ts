import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { deadlineExceeded, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { type Asked, readAnswerHead, readUpgradeHead, trailersForCaller, wrong } from './answer.ts';
import { headersForSandbox, trailersForSandbox } from './headers.ts';
import type { Way } from './way.ts';

export interface PassOptions {
  /** Connected to the port inside. This owns it. */
  readonly connection: Duplex;
  /** With its query. */
  readonly path: string;
  readonly port: number;
  /** The platform's, which the request carries. */
  readonly tokens: readonly string[];
  readonly way: Way;
  /** Bytes that the caller sent behind the head of an upgrade. */
  readonly upgradeHead: Buffer | null;
}

type Answered =
  | { readonly kind: 'response'; readonly answer: IncomingMessage }
  | { readonly kind: 'upgrade'; readonly answer: IncomingMessage; readonly inner: Duplex; readonly head: Buffer };

/**
 * Passes one request to a server inside a sandbox and its answer back, both as they come. Fails with `unavailable` when the server
 * breaks off before the head of its answer, or gives a head that cannot be passed on; later than that the caller's connection breaks off too.
 */
export async function passRequest(request: FastifyRequest, reply: FastifyReply, options: PassOptions) {
  const { connection, path, port, tokens, way } = options;
  const { raw } = request;
  const asked: Asked = { port, request: raw, isUpgrade: request.ws, way };
  connection.on('error', () => undefined);
  // Whatever becomes of this request, nobody speaks with the inside once the caller has gone or has its answer.
  reply.raw.once('close', () => connection.destroy());
  const inner = http.request({
    method: request.method,
    path,
    headers: headersForSandbox(raw, { traceId: request.traceId, tokens, isUpgrade: request.ws, way }),
    createConnection: () => connection,
    setHost: false,
    insecureHTTPParser: false,
    maxHeaderSize: LIMITS.passHeadBytes,
  });
  // One more than may be there: node leaves out what is above its bound, and says nothing.
  inner.maxHeadersCount = LIMITS.passHeaders + 1;
  // It may come paused, and a client of node only listens.
  inner.once('socket', () => connection.resume());
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) inner.destroy();
  });
  const onIdle = () => {
    if (reply.raw.headersSent) reply.raw.destroy();
    else inner.destroy(deadlineExceeded(`the server on port ${port} did not answer in ${LIMITS.passIdleMs / 1000} s`));
  };
  reply.raw.setTimeout(LIMITS.passIdleMs, onIdle);
  // Node tells an answer of no pause of a socket that asks for an upgrade.
  if (request.ws) raw.socket.once('timeout', onIdle);
  sendBody(raw, inner, { tokens, way });
  try {
    const answered = await headOf(inner, asked);
    if (answered.kind === 'upgrade') passUpgrade(request, reply, answered, { asked, callerHead: options.upgradeHead });
    else passAnswer(request, reply, answered.answer, { asked, inner });
  } catch (error) {
    inner.destroy();
    connection.destroy();
    throw error;
  }
  return reply;
}

function headOf(inner: ClientRequest, asked: Asked): Promise<Answered> {
  const { port } = asked;
  return new Promise((resolve, reject) => {
    inner.once('response', answer => resolve({ kind: 'response', answer }));
    inner.once('upgrade', (answer, socket, head) => resolve({ kind: 'upgrade', answer, inner: socket, head }));
    // Interim answers are for whoever sent the request, which is this service: they are counted and dropped.
    let interim = 0;
    inner.on('information', ({ statusCode }) => {
      interim += 1;
      if (statusCode === 101) reject(wrong(asked, 'its status is 101, and it names no protocol'));
      else if (interim <= LIMITS.passInterimAnswers) return;
      reject(wrong(asked, `it has more than ${LIMITS.passInterimAnswers} interim answers (1xx) before it`));
      inner.destroy();
    });
    // Stays: what comes after the head shows in the answer itself.
    inner.on('error', error => {
      if (error instanceof ServiceError) reject(error);
      const text = `the server on port ${port} broke off before it answered: ${messageOf(error)}`;
      reject(unavailable(text, { cause: error }));
    });
    inner.once('close', () => reject(unavailable(`the server on port ${port} broke off before it answered`)));
  });
}

function sendBody(raw: IncomingMessage, inner: ClientRequest, head: Pick<PassOptions, 'tokens' | 'way'>): void {
  raw.pipe(inner, { end: false });
  raw.once('end', () => {
    // Requests that were injected have none.
    if (raw.rawTrailers?.length) inner.addTrailers(trailersForSandbox(raw.rawTrailers, head));
    inner.end();
  });
  // A server that answers before it has read everything may close its side; the rest is dropped.
  inner.once('close', () => {
    raw.unpipe(inner);
    raw.resume();
  });
}

function passAnswer(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: IncomingMessage,
  { asked, inner }: { readonly asked: Asked; readonly inner: ClientRequest },
): void {
  const { status, reason, headers } = readAnswerHead(answer, asked);
  const outer = reply.raw;
  reply.hijack();
  const broken = (error?: Error) => {
    if (outer.writableFinished) return;
    request.failure ??= `the answer from the sandbox broke off: ${error ? messageOf(error) : 'it was cut short'}`;
    outer.destroy();
  };
  outer.on('error', broken);
  answer.once('error', broken);
  answer.once('close', () => {
    if (!answer.complete) broken();
  });
  outer.once('close', () => {
    answer.destroy();
    inner.destroy();
  });
  headers.push('X-Trace-Id', request.traceId, ...asked.way.added);
  // The socket of an upgrade that was refused is no longer one that node reads further requests from.
  if (request.ws) headers.push('Connection', 'close');
  outer.sendDate = answer.headers.date === undefined;
  try {
    outer.writeHead(status, reason, headers);
    outer.flushHeaders();
  } catch (error) {
    // Everything that node refuses has been looked for; if not, it is this caller's connection that ends, and nothing else.
    broken(error as Error);
    return;
  }
  answer.pipe(outer, { end: false });
  answer.once('end', () => {
    if (!answer.complete) return;
    if (answer.rawTrailers.length > 0) outer.addTrailers(trailersForCaller(answer, asked.way));
    outer.end();
  });
}

/** From here on both sides say what they like. */
function passUpgrade(
  { raw, traceId }: FastifyRequest,
  reply: FastifyReply,
  { answer, inner, head }: Extract<Answered, { kind: 'upgrade' }>,
  { asked, callerHead }: { readonly asked: Asked; readonly callerHead: Buffer | null },
): void {
  const { status, reason, headers } = readUpgradeHead(answer, asked);
  const { socket } = raw;
  reply.hijack();
  // For the access log and the metrics; the head is written below.
  reply.raw.statusCode = status;
  const lines = [`HTTP/1.1 ${status} ${reason}`];
  for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`);
  socket.write(`${lines.join('\r\n')}\r\nX-Trace-Id: ${traceId}\r\n\r\n`, 'latin1');
  if (head.length > 0) socket.write(head);
  if (callerHead !== null && callerHead.length > 0) inner.write(callerHead);
  join(socket, inner);
}

/** Bytes both ways, each no faster than the other side takes them, until both have ended or one breaks. */
function join(socket: Socket, inner: Duplex): void {
  socket.setTimeout(LIMITS.channelIdleMs, () => socket.destroy());
  socket.on('error', () => inner.destroy());
  inner.on('error', () => socket.destroy());
  socket.once('close', () => inner.destroy());
  inner.once('close', () => socket.destroySoon());
  socket.pipe(inner);
  inner.pipe(socket);
}
