import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { deadlineExceeded, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { type Asked, readAnswerHead, readUpgradeHead, trailersForCaller, wrong } from './answer.ts';
import { headersForSandbox, trailersForSandbox } from './headers.ts';
import type { HeaderChanges } from './links.ts';

export interface PassOptions {
  /** The connection to the port in the sandbox. `passRequest` owns and closes it. */
  readonly connection: Duplex;
  /** The path with its query. */
  readonly path: string;
  readonly port: number;
  /** The platform's tokens in the request. */
  readonly tokens: readonly string[];
  readonly headerChanges: HeaderChanges;
  /** Bytes that followed the head of an upgrade request. null: there are none. */
  readonly upgradeHead: Buffer | null;
}

const HEAD_ONLY = Buffer.alloc(0);

type Answered =
  | { readonly kind: 'response'; readonly answer: IncomingMessage }
  | { readonly kind: 'upgrade'; readonly answer: IncomingMessage; readonly inner: Duplex; readonly head: Buffer };

/**
 * Passes a request to a server in a sandbox, and streams its answer back.
 * Fails with `unavailable` if the server disconnects before the head of its answer, or sends an invalid head.
 * After the head, a failure closes the client's connection.
 */
export async function passRequest(request: FastifyRequest, reply: FastifyReply, options: PassOptions) {
  const { connection, path, port, tokens, headerChanges } = options;
  const { raw } = request;
  const asked: Asked = { port, request: raw, isUpgrade: request.ws, headerChanges };
  connection.on('error', () => undefined);
  // Once the client has its answer or has disconnected, no part of the service uses the inner connection.
  reply.raw.once('close', () => connection.destroy());
  const inner = http.request({
    method: request.method,
    path,
    headers: headersForSandbox(raw, { traceId: request.traceId, tokens, isUpgrade: request.ws, headerChanges }),
    createConnection: () => connection,
    setHost: false,
    insecureHTTPParser: false,
    maxHeaderSize: LIMITS.passHeadBytes,
  });
  // One more than allowed, because Node silently drops headers above its limit.
  inner.maxHeadersCount = LIMITS.passHeaders + 1;
  // The connection may be paused, and Node's HTTP client does not resume it.
  inner.once('socket', () => connection.resume());
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) inner.destroy();
  });
  const onIdle = () => {
    if (reply.raw.headersSent) reply.raw.destroy();
    else inner.destroy(deadlineExceeded(`the server on port ${port} did not answer in ${LIMITS.passIdleMs / 1000} s`));
  };
  reply.raw.setTimeout(LIMITS.passIdleMs, onIdle);
  // For an upgrade request, Node does not report the socket's timeout to the response.
  if (request.ws) raw.socket.once('timeout', onIdle);
  sendBody(raw, inner, { tokens, headerChanges });
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
    // Interim answers are for the sender of the request, which is this service. They are counted and dropped.
    let interim = 0;
    inner.on('information', ({ statusCode }) => {
      interim += 1;
      if (statusCode === 101) reject(wrong(asked, 'its status is 101, and it names no protocol'));
      else if (interim <= LIMITS.passInterimAnswers) return;
      reject(wrong(asked, `it has more than ${LIMITS.passInterimAnswers} interim answers (1xx) before it`));
      inner.destroy();
    });
    // Stays registered. A failure after the head appears in the answer itself.
    inner.on('error', error => {
      if (error instanceof ServiceError) reject(error);
      const isTooLong = (error as NodeJS.ErrnoException).code === 'HPE_HEADER_OVERFLOW';
      const kibibytes = LIMITS.passHeadBytes / 1024;
      const why = isTooLong ? `the head of its answer is larger than ${kibibytes} KiB` : messageOf(error);
      reject(
        unavailable(`the server on port ${port} closed the connection before it answered: ${why}`, { cause: error }),
      );
    });
    inner.once('close', () =>
      reject(unavailable(`the server on port ${port} closed the connection before it answered`)),
    );
  });
}

function sendBody(
  raw: IncomingMessage,
  inner: ClientRequest,
  head: Pick<PassOptions, 'tokens' | 'headerChanges'>,
): void {
  raw.pipe(inner, { end: false });
  raw.once('end', () => {
    // Injected requests have no trailers.
    if (raw.rawTrailers?.length) inner.addTrailers(trailersForSandbox(raw.rawTrailers, head));
    inner.end();
  });
  // A server may answer before it has read the whole body, and close its side. The rest is discarded.
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
    request.failure ??= `the answer from the sandbox was interrupted: ${error ? messageOf(error) : 'it was cut short'}`;
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
  headers.push('X-Trace-Id', request.traceId, ...asked.headerChanges.added);
  // Node reads no further requests from the socket of a refused upgrade.
  if (request.ws) headers.push('Connection', 'close');
  outer.sendDate = answer.headers.date === undefined;
  try {
    outer.writeHead(status, reason, headers);
    // `flushHeaders` would write the head as UTF-8, and turn each non-ASCII byte into two.
    outer.write(HEAD_ONLY);
  } catch (error) {
    // All headers that Node refuses were rejected before. If one remains, only this client's connection is
    // closed.
    broken(error as Error);
    return;
  }
  answer.pipe(outer, { end: false });
  answer.once('end', () => {
    if (!answer.complete) return;
    if (answer.rawTrailers.length > 0) outer.addTrailers(trailersForCaller(answer, asked.headerChanges));
    outer.end();
  });
}

/** Connects both sides after an upgrade. The service no longer interprets their bytes. */
function passUpgrade(
  { raw, traceId }: FastifyRequest,
  reply: FastifyReply,
  { answer, inner, head }: Extract<Answered, { kind: 'upgrade' }>,
  { asked, callerHead }: { readonly asked: Asked; readonly callerHead: Buffer | null },
): void {
  const { status, reason, headers } = readUpgradeHead(answer, asked);
  const { socket } = raw;
  reply.hijack();
  // Sets the status for the access log and the metrics. The head is written below.
  reply.raw.statusCode = status;
  const lines = [`HTTP/1.1 ${status} ${reason}`];
  for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`);
  socket.write(`${lines.join('\r\n')}\r\nX-Trace-Id: ${traceId}\r\n\r\n`, 'latin1');
  if (head.length > 0) socket.write(head);
  if (callerHead !== null && callerHead.length > 0) inner.write(callerHead);
  join(socket, inner);
}

/** Pipes bytes in both directions with backpressure, until both sides have ended or one fails. */
function join(socket: Socket, inner: Duplex): void {
  socket.setTimeout(LIMITS.channelIdleMs, () => socket.destroy());
  socket.on('error', () => inner.destroy());
  inner.on('error', () => socket.destroy());
  socket.once('close', () => inner.destroy());
  inner.once('close', () => socket.destroySoon());
  socket.pipe(inner);
  inner.pipe(socket);
}
