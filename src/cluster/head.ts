import type { IncomingMessage } from 'node:http';
import type { Role } from '../http/access/credentials.ts';
import type { Outgoing } from '../http/forwarding.ts';

/** Header that replicas add to a forwarded request. */
export const FORWARD_HEADER = 'X-Rookery-Forward';
/**
 * Header with the time at which the request's token expires, for answers that stay open. Replicas of an older
 * version neither send nor read it.
 */
const UNTIL_HEADER = 'X-Rookery-Until';
/**
 * Header of the answer when a replica does not have the resource. Its value is the token of the request, so
 * that a sandbox cannot forge it.
 */
export const NOT_HERE_HEADER = 'X-Rookery-Not-Here';
export const NOT_HERE_STATUS = 421;

const FORWARD = FORWARD_HEADER.toLowerCase();
const UNTIL = UNTIL_HEADER.toLowerCase();
export const NOT_HERE = NOT_HERE_HEADER.toLowerCase();

/** Content of the forward header. */
export interface ForwardMark {
  readonly token: string;
  /** Node that the request is for. Another replica may have its address by now. */
  readonly nodeId: string;
  readonly tenant: string;
  readonly role: Role;
  /** Expiry of the caller's token, epoch milliseconds. Null: it does not expire. */
  readonly untilMs: number | null;
  readonly awaitsContinue: boolean;
}

const MARK = /^1 ([\w-]{1,64}) ([\w.-]{1,128}) ([A-Za-z0-9][\w.-]{0,63}) (viewer|user|developer) (whole|later)$/;

const MOMENT = /^\d{1,15}$/;

function formatMark({ token, nodeId, tenant, role, awaitsContinue }: ForwardMark): string {
  return `1 ${token} ${nodeId} ${tenant} ${role} ${awaitsContinue ? 'later' : 'whole'}`;
}

/**
 * Removes the mark from a request on a cluster connection and returns it. Later parts thus never see it.
 * Null: the request has no valid mark.
 */
export function takeMark(request: IncomingMessage): ForwardMark | null {
  const { headers, rawHeaders } = request;
  const { [FORWARD]: sent, [UNTIL]: until } = headers;
  delete headers[FORWARD];
  delete headers[UNTIL];
  for (let at = rawHeaders.length - 2; at >= 0; at -= 2) {
    const name = rawHeaders[at]?.toLowerCase();
    if (name === FORWARD || name === UNTIL) rawHeaders.splice(at, 2);
  }
  const match = typeof sent === 'string' ? MARK.exec(sent) : null;
  if (match === null) return null;
  const [, token = '', nodeId = '', tenant = '', role, body] = match;
  const untilMs = typeof until === 'string' && MOMENT.test(until) ? Number(until) : null;
  return { token, nodeId, tenant, role: role as Role, untilMs, awaitsContinue: body === 'later' };
}

/**
 * Headers that belong to a single connection or have no meaning for the other replica. `expect` has already
 * been met.
 */
const OF_HOP = new Set([
  ...['connection', 'expect', 'keep-alive', 'proxy-connection', 'trailer', 'transfer-encoding', 'upgrade'],
  ...['x-trace-id', FORWARD, UNTIL],
]);

/**
 * Returns the head of a request for another replica, as names and values in turn. Headers of the connection
 * are replaced; all others stay as sent.
 */
export function requestHead({ raw, traceId, body, upgradeHead }: Outgoing, mark: ForwardMark): string[] {
  const { rawHeaders, headers } = raw;
  // The first header, since Node drops headers above its maximum count.
  const sent = [FORWARD_HEADER, formatMark(mark)];
  if (mark.untilMs !== null) sent.push(UNTIL_HEADER, String(Math.ceil(mark.untilMs)));
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (!OF_HOP.has(name.toLowerCase())) sent.push(name, rawHeaders[at + 1] as string);
  }
  sent.push('X-Trace-Id', traceId);
  const { 'transfer-encoding': encoding, 'content-length': length, trailer, upgrade } = headers;
  if (upgradeHead !== null) {
    // The other replica must refuse a body here. Without an explicit length of 0, Node would announce a
    // chunked body.
    if (encoding !== undefined) sent.push('Transfer-Encoding', encoding);
    else if (length === undefined && raw.method !== 'GET') sent.push('Content-Length', '0');
  } else if (encoding !== undefined) {
    if (body === 'stream') {
      sent.push('Transfer-Encoding', encoding);
      if (trailer !== undefined) sent.push('Trailer', trailer);
      // The body arrived in chunks and is sent as a whole.
    } else if (body !== 'none') sent.push('Content-Length', String(body.length));
  }
  const named = namedByConnection(headers.connection);
  if (upgradeHead !== null) sent.push('Connection', ['Upgrade', ...named].join(', '), 'Upgrade', upgrade ?? '');
  else if (named.length > 0) sent.push('Connection', ['keep-alive', ...named].join(', '));
  return sent;
}

/** Characters that would begin another line. Node's parser rejects them. */
const LINE_BREAK = /[\r\n]/;

/** Returns the head as text, with the request line and the empty line, for a request with a complete body. */
export function requestText(outgoing: Outgoing, mark: ForwardMark): string {
  const { method = 'GET', url = '/' } = outgoing.raw;
  const sent = requestHead(outgoing, mark);
  let text = `${method} ${url} HTTP/1.1\r\n`;
  if (LINE_BREAK.test(url)) throw new TypeError('the path of a request has a line break');
  for (let at = 0; at < sent.length; at += 2) {
    const value = sent[at + 1] as string;
    if (LINE_BREAK.test(value)) throw new TypeError(`the header ${sent[at]} of a request has a line break`);
    text += `${sent[at]}: ${value}\r\n`;
  }
  return `${text}\r\n`;
}

/**
 * Returns the headers that the caller named as those of its connection. The other replica gets their names,
 * and withholds the same headers from handlers and sandboxes.
 */
function namedByConnection(connection: string | undefined): readonly string[] {
  if (connection === undefined || connection === 'keep-alive' || connection === 'close') return [];
  return connection.split(/[ \t]*,[ \t]*/).filter(name => name !== '' && !/^(keep-alive|close|upgrade)$/i.test(name));
}

/** Head of another replica's answer: headers for the caller, and facts about the connection. */
export class AnswerHead {
  readonly status: number;
  readonly reason: string;
  /** Headers for the caller: names and values in turn, unchanged. */
  readonly headers: string[] = [];
  /** Announced length of the body. */
  length: string | undefined;
  transferEncoding: string | undefined;
  isClosing = false;
  hasUpgrade = false;
  hasDate = false;
  hasTrailer = false;
  /** Token of an answer that says "not here". */
  notHere: string | undefined;

  constructor(status: number, reason: string) {
    this.status = status;
    this.reason = reason;
  }

  static of({ statusCode = 500, statusMessage = '', rawHeaders }: IncomingMessage): AnswerHead {
    const head = new AnswerHead(statusCode, statusMessage);
    for (let at = 0; at < rawHeaders.length; at += 2) head.add(rawHeaders[at] as string, rawHeaders[at + 1] as string);
    return head;
  }

  add(name: string, value: string): void {
    switch (name.toLowerCase()) {
      case 'connection':
        if (/\bclose\b/i.test(value)) this.isClosing = true;
        return;
      case 'keep-alive':
      case 'proxy-connection':
        return;
      // Node frames the body again.
      case 'transfer-encoding':
        this.transferEncoding = this.transferEncoding === undefined ? value : `${this.transferEncoding}, ${value}`;
        return;
      case 'content-length':
        this.length = this.length === undefined ? value : `${this.length}, ${value}`;
        break;
      case 'upgrade':
        this.hasUpgrade = true;
        break;
      case 'date':
        this.hasDate = true;
        break;
      case 'trailer':
        this.hasTrailer = true;
        break;
      case NOT_HERE:
        this.notHere = value;
        break;
    }
    this.headers.push(name, value);
  }

  /** Returns the headers for a caller that can receive trailers, or cannot. */
  sent(hasTrailers: boolean): string[] {
    if (hasTrailers || !this.hasTrailer) return this.headers;
    const kept: string[] = [];
    for (let at = 0; at < this.headers.length; at += 2) {
      const name = this.headers[at] as string;
      if (name.toLowerCase() !== 'trailer') kept.push(name, this.headers[at + 1] as string);
    }
    return kept;
  }
}
