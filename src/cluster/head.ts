import type { IncomingMessage } from 'node:http';
import type { Role } from '../http/credentials.ts';
import type { Outgoing } from '../http/forwarding.ts';

/** The one header that replicas say to each other beside the request. */
export const FORWARD_HEADER = 'X-Rookery-Forward';
/** Beside it: when the token holds no longer that let the request in, for an answer that stays open. Replicas of an older version neither say nor read it. */
const UNTIL_HEADER = 'X-Rookery-Until';
/** With it a replica answers what it does not have; the value is the token that the request came with, so that no sandbox can say it. */
export const NOT_HERE_HEADER = 'X-Rookery-Not-Here';
export const NOT_HERE_STATUS = 421;

const FORWARD = FORWARD_HEADER.toLowerCase();
const UNTIL = UNTIL_HEADER.toLowerCase();
export const NOT_HERE = NOT_HERE_HEADER.toLowerCase();

/** What comes in it. */
export interface ForwardMark {
  readonly token: string;
  /** For whom it is meant: another replica may have the address by now. */
  readonly nodeId: string;
  readonly tenant: string;
  readonly role: Role;
  /** Null: nothing ends. */
  readonly untilMs: number | null;
  readonly awaitsContinue: boolean;
}

const MARK = /^1 ([\w-]{1,64}) ([\w.-]{1,128}) ([A-Za-z0-9][\w.-]{0,63}) (viewer|user|developer) (whole|later)$/;

const MOMENT = /^\d{1,15}$/;

function formatMark({ token, nodeId, tenant, role, awaitsContinue }: ForwardMark): string {
  return `1 ${token} ${nodeId} ${tenant} ${role} ${awaitsContinue ? 'later' : 'whole'}`;
}

/** Takes the mark out of a request that came over a connection of the cluster: nobody behind sees it. Null: it has none that is right. */
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

/** Said anew for each connection, or of no meaning to the other replica. `expect` has been met. */
const OF_HOP = new Set([
  ...['connection', 'expect', 'keep-alive', 'proxy-connection', 'trailer', 'transfer-encoding', 'upgrade'],
  ...['x-trace-id', FORWARD, UNTIL],
]);

/** The head of a request as another replica gets it: names and values in turn, as they were sent but for what is of the connection. */
export function requestHead({ raw, traceId, body, upgradeHead }: Outgoing, mark: ForwardMark): string[] {
  const { rawHeaders, headers } = raw;
  // The first, since Node leaves out what is above its number of headers.
  const sent = [FORWARD_HEADER, formatMark(mark)];
  if (mark.untilMs !== null) sent.push(UNTIL_HEADER, String(Math.ceil(mark.untilMs)));
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (!OF_HOP.has(name.toLowerCase())) sent.push(name, rawHeaders[at + 1] as string);
  }
  sent.push('X-Trace-Id', traceId);
  const { 'transfer-encoding': encoding, 'content-length': length, trailer, upgrade } = headers;
  if (upgradeHead !== null) {
    // That it has a body is for the other replica to refuse; where it has none, Node would announce one of chunks.
    if (encoding !== undefined) sent.push('Transfer-Encoding', encoding);
    else if (length === undefined && raw.method !== 'GET') sent.push('Content-Length', '0');
  } else if (encoding !== undefined) {
    if (body === 'stream') {
      sent.push('Transfer-Encoding', encoding);
      if (trailer !== undefined) sent.push('Trailer', trailer);
      // It came in chunks and is in one piece now.
    } else if (body !== 'none') sent.push('Content-Length', String(body.length));
  }
  const named = namedByConnection(headers.connection);
  if (upgradeHead !== null) sent.push('Connection', ['Upgrade', ...named].join(', '), 'Upgrade', upgrade ?? '');
  else if (named.length > 0) sent.push('Connection', ['keep-alive', ...named].join(', '));
  return sent;
}

/** A value with these would begin a line of its own. Node's reader lets none pass. */
const LINE_BREAK = /[\r\n]/;

/** The same as one text, with the first line and the last, for a request whose body is there whole. */
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
 * Headers that the caller named as those of its connection. The other replica learns their names and treats them as if they came from
 * the caller itself: it keeps the same ones from handlers and sandboxes.
 */
function namedByConnection(connection: string | undefined): readonly string[] {
  if (connection === undefined || connection === 'keep-alive' || connection === 'close') return [];
  return connection.split(/[ \t]*,[ \t]*/).filter(name => name !== '' && !/^(keep-alive|close|upgrade)$/i.test(name));
}
