import type { IncomingMessage } from 'node:http';
import { unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { namedByConnection, OF_CONNECTION, OF_FRAMING, tokens } from './headers.ts';
import type { Way } from './way.ts';

/**
 * The answer of a server inside is input: this reads the head of its answer, and either gives what may go to the caller or says what is
 * wrong with it. Node's parser has split it, strictly; what the parser lets through and node would then refuse to write ends here.
 */
export interface AnswerHead {
  /** 200 to 999, or 101 for an upgrade that was asked for. */
  readonly status: number;
  readonly reason: string;
  /** Names and values in turn. */
  readonly headers: string[];
}

export interface Asked {
  readonly port: number;
  /** The caller's request. */
  readonly request: IncomingMessage;
  readonly isUpgrade: boolean;
  readonly way: Way;
}

/** Headers that a browser would take for the whole origin, or for other paths of it; the origin is the service's. */
const OF_ORIGIN = new Set([
  'accept-ch',
  'accept-ch-lifetime',
  'alt-svc',
  'clear-site-data',
  'critical-ch',
  'expect-ct',
  'nel',
  'no-vary-search',
  'origin-agent-cluster',
  'public-key-pins',
  'public-key-pins-report-only',
  'report-to',
  'sec-session-registration',
  'secure-session-registration',
  'service-worker-allowed',
  'set-cookie2',
  'set-login',
  'strict-transport-security',
  'use-as-dictionary',
]);
/** Orders for a proxy in front of the service: send another file, or another address, in place of this answer. */
const OF_PROXY = new Set([
  'x-accel-redirect',
  'x-lighttpd-send-file',
  'x-litespeed-location',
  'x-reproxy-file',
  'x-reproxy-url',
  'x-sendfile',
]);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const NO_TEXT = /[^\t\x20-\x7e\x80-\xff]/;
/** With these a browser proves who its user is to an origin that it trusts, unasked. They need one connection for several requests. */
const OF_CONNECTION_SCHEMES = /^\s*(negotiate|ntlm)\b/i;

/** The head of an answer that is not an upgrade. Fails with `unavailable`. */
export function readAnswerHead(answer: IncomingMessage, asked: Asked): AnswerHead {
  const status = answer.statusCode ?? 0;
  if (status < 200 || status > 999) throw wrong(asked, `its status is ${status}, which is none of an answer`);
  const encoding = answer.headers['transfer-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked') {
    throw wrong(asked, 'its Transfer-Encoding is not chunked');
  }
  if (encoding !== undefined && answer.headers['content-length'] !== undefined) {
    throw wrong(asked, 'it has a Content-Length and a Transfer-Encoding');
  }
  const headers = readHeaders(answer, asked);
  const { 'content-length': length } = answer.headers;
  if (length !== undefined && status !== 204) headers.push('Content-Length', length);
  const { trailer } = answer.headers;
  if (trailer !== undefined && mayHaveTrailers(answer, asked)) headers.push('Trailer', trailer);
  return { status, reason: answer.statusMessage ?? '', headers };
}

/** The head of an answer with which the connection becomes another protocol's. Fails with `unavailable` unless that was asked for. */
export function readUpgradeHead(answer: IncomingMessage, asked: Asked): AnswerHead {
  if (!asked.isUpgrade) throw wrong(asked, 'its status is 101, and nobody asked for another protocol');
  const wanted = tokens(asked.request.headers.upgrade);
  const given = tokens(answer.headers.upgrade);
  if (given.size === 0 || [...given].some(protocol => !wanted.has(protocol))) {
    throw wrong(asked, 'it changes to a protocol that nobody asked for');
  }
  const headers = ['Connection', 'Upgrade', 'Upgrade', answer.headers.upgrade as string];
  headers.push(...readHeaders(answer, asked));
  return { status: 101, reason: answer.statusMessage ?? '', headers };
}

/** The trailers of an answer that may go to the caller, as pairs. Fields that do not belong into trailers are left out. */
export function trailersForCaller(answer: IncomingMessage, way: Way): [string, string][] {
  return pairsOf(answer.rawTrailers).filter(
    ([name, value]) =>
      TOKEN.test(name) &&
      !NO_TEXT.test(value) &&
      passed(name.toLowerCase(), value, way) === value &&
      !/^(set-cookie|content-)/i.test(name),
  );
}

/** Why node's parser could not read an answer. */
export function wrong({ port }: Pick<Asked, 'port'>, what: string) {
  return unavailable(`the server on port ${port} gave an answer that cannot be passed on: ${what}`);
}

function readHeaders(answer: IncomingMessage, asked: Asked): string[] {
  if (NO_TEXT.test(answer.statusMessage ?? '')) throw wrong(asked, 'its reason has control characters');
  const pairs = pairsOf(answer.rawHeaders);
  if (pairs.length > LIMITS.passHeaders) throw wrong(asked, `it has more than ${LIMITS.passHeaders} headers`);
  const named = namedByConnection(answer.headers.connection);
  const sent: string[] = [];
  for (const [name, value] of pairs) {
    if (!TOKEN.test(name) || NO_TEXT.test(value)) throw wrong(asked, 'one of its headers has control characters');
    const lower = name.toLowerCase();
    if (named.has(lower) || OF_FRAMING.has(lower)) continue;
    const shown = passed(lower, value, asked.way);
    if (shown !== undefined) sent.push(name, shown);
  }
  return sent;
}

/** What the caller gets of a header; undefined: nothing. */
function passed(name: string, value: string, way: Way): string | undefined {
  if (OF_CONNECTION.has(name) || OF_ORIGIN.has(name) || OF_PROXY.has(name) || name === 'x-trace-id') return undefined;
  if (name === 'www-authenticate') return OF_CONNECTION_SCHEMES.test(value) ? undefined : value;
  // Nobody but the service says who its callers are. Anywhere in it: clients disagree about where a cookie ends and the next begins.
  if (name === 'set-cookie') return way.setCookie(value);
  return name === 'location' || name === 'content-location' ? way.location(value) : value;
}

/** Node refuses to announce trailers where there can be none. */
function mayHaveTrailers({ headers, statusCode }: IncomingMessage, { request }: Asked): boolean {
  if (headers['content-length'] !== undefined || statusCode === 204 || statusCode === 304) return false;
  return request.method !== 'HEAD' && request.httpVersion === '1.1';
}

function pairsOf(flat: readonly string[]): [string, string][] {
  const found: [string, string][] = [];
  for (let at = 0; at < flat.length; at += 2) found.push([flat[at] as string, flat[at + 1] as string]);
  return found;
}
