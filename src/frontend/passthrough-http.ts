import http, { type ClientRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { deadlineExceeded, messageOf, ServiceError, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { headersForCaller, headersForSandbox } from './passthrough-headers.ts';

export interface PassOptions {
  /** Connected to the port inside. This owns it. */
  readonly connection: Duplex;
  /** With its query. */
  readonly path: string;
  readonly port: number;
  readonly hasAuth: boolean;
  /** What the caller sent behind the head of an upgrade. */
  readonly upgradeHead: Buffer | null;
}

type Answered =
  | { readonly kind: 'response'; readonly answer: IncomingMessage }
  | { readonly kind: 'upgrade'; readonly answer: IncomingMessage; readonly inner: Duplex; readonly head: Buffer };

/**
 * Passes one request to a server inside a sandbox and its answer back, both as they come. Fails with `unavailable` when the server
 * breaks off before the head of its answer; later than that the caller's connection breaks off too.
 */
export async function passRequest(request: FastifyRequest, reply: FastifyReply, options: PassOptions) {
  const { connection, path, port, hasAuth } = options;
  const { raw } = request;
  connection.on('error', () => undefined);
  const inner = http.request({
    method: request.method,
    path,
    headers: headersForSandbox(raw, { traceId: request.traceId, hasAuth, isUpgrade: request.ws }),
    createConnection: () => connection,
    setHost: false,
  });
  // It may come paused, and a client of node only listens.
  inner.once('socket', () => connection.resume());
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) inner.destroy();
  });
  reply.raw.setTimeout(LIMITS.passIdleMs, () => {
    if (reply.raw.headersSent) reply.raw.destroy();
    else inner.destroy(deadlineExceeded(`the server on port ${port} did not answer in ${LIMITS.passIdleMs / 1000} s`));
  });
  passHints(inner, reply.raw);
  sendBody(raw, inner);
  const answered = await headOf(inner, port);
  reply.hijack();
  if (answered.kind === 'upgrade') passUpgrade(request, reply, answered, options.upgradeHead);
  else passAnswer(request, reply, answered.answer, inner);
  return reply;
}

function headOf(inner: ClientRequest, port: number): Promise<Answered> {
  return new Promise((resolve, reject) => {
    inner.once('response', answer => resolve({ kind: 'response', answer }));
    inner.once('upgrade', (answer, socket, head) => resolve({ kind: 'upgrade', answer, inner: socket, head }));
    // Stays: what comes after the head shows in the answer itself.
    inner.on('error', error => {
      if (error instanceof ServiceError) reject(error);
      const text = `the server on port ${port} broke off before it answered: ${messageOf(error)}`;
      reject(unavailable(text, { cause: error }));
    });
    inner.once('close', () => reject(unavailable(`the server on port ${port} broke off before it answered`)));
  });
}

/** Interim answers, as far as node can send them. */
function passHints(inner: ClientRequest, outer: ServerResponse): void {
  inner.on('information', ({ statusCode, headers }) => {
    if (outer.headersSent) return;
    if (statusCode === 102) outer.writeProcessing();
    else if (statusCode === 103 && headers.link)
      outer.writeEarlyHints({ link: String(headers.link).split(/,\s*(?=<)/) });
  });
}

function sendBody(raw: IncomingMessage, inner: ClientRequest): void {
  raw.pipe(inner, { end: false });
  raw.once('end', () => {
    // Requests that were injected have none.
    if (raw.rawTrailers?.length) inner.addTrailers(pairs(raw.rawTrailers));
    inner.end();
  });
  // A server that answers before it has read everything may close its side; the rest is dropped.
  inner.once('close', () => {
    raw.unpipe(inner);
    raw.resume();
  });
}

function passAnswer(request: FastifyRequest, reply: FastifyReply, answer: IncomingMessage, inner: ClientRequest): void {
  const outer = reply.raw;
  const broken = (error?: Error) => {
    if (outer.writableFinished) return;
    request.failure ??= `the answer from the sandbox broke off: ${error ? messageOf(error) : 'it was cut short'}`;
    outer.destroy();
  };
  const headers = headersForCaller(answer, request.traceId);
  // The socket of an upgrade that was refused is no longer one that node reads further requests from.
  if (request.ws) headers.push('Connection', 'close');
  outer.sendDate = answer.headers.date === undefined;
  outer.writeHead(answer.statusCode ?? 502, answer.statusMessage ?? '', headers);
  outer.flushHeaders();
  answer.once('error', broken);
  answer.once('close', () => {
    if (!answer.complete) broken();
  });
  outer.once('close', () => {
    answer.destroy();
    inner.destroy();
  });
  answer.pipe(outer, { end: false });
  answer.once('end', () => {
    if (!answer.complete) return;
    if (answer.rawTrailers.length > 0) outer.addTrailers(pairs(answer.rawTrailers));
    outer.end();
  });
}

/** From here on both sides say what they like. */
function passUpgrade(
  { raw, traceId }: FastifyRequest,
  reply: FastifyReply,
  { answer, inner, head }: Extract<Answered, { kind: 'upgrade' }>,
  callerHead: Buffer | null,
): void {
  const { socket } = raw;
  // For the access log and the metrics; the head is written below.
  reply.raw.statusCode = answer.statusCode ?? 101;
  socket.write(upgradeHead(answer, traceId), 'latin1');
  if (head.length > 0) socket.write(head);
  if (callerHead !== null && callerHead.length > 0) inner.write(callerHead);
  join(socket, inner);
}

function upgradeHead(answer: IncomingMessage, traceId: string): string {
  const lines = [`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}`];
  for (let at = 0; at < answer.rawHeaders.length; at += 2) {
    const name = answer.rawHeaders[at] as string;
    if (name.toLowerCase() !== 'x-trace-id') lines.push(`${name}: ${answer.rawHeaders[at + 1]}`);
  }
  return `${lines.join('\r\n')}\r\nX-Trace-Id: ${traceId}\r\n\r\n`;
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

function pairs(flat: readonly string[]): [string, string][] {
  const found: [string, string][] = [];
  for (let at = 0; at < flat.length; at += 2) found.push([flat[at] as string, flat[at + 1] as string]);
  return found;
}
