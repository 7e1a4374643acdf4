import type { IncomingMessage } from 'node:http';
import { unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { namedByConnection, OF_CONNECTION, OF_FRAMING, tokens } from './headers.ts';
import type { HeaderChanges } from './links.ts';

/**
 * The head of a sandbox server's answer, checked before it is passed to the client. The answer is untrusted
 * input. Node's parser has split it in strict mode. This file rejects heads that the parser accepts and that
 * Node would refuse to write.
 */
export interface AnswerHead {
  /** 200 to 999, or 101 for a requested upgrade. */
  readonly status: number;
  readonly reason: string;
  /** Alternating names and values. */
  readonly headers: string[];
}

export interface Asked {
  readonly port: number;
  /** The client's request. */
  readonly request: IncomingMessage;
  readonly isUpgrade: boolean;
  readonly headerChanges: HeaderChanges;
}

/**
 * Headers that a browser applies to the whole origin, or to other paths of it. The origin is the service's.
 */
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
/** Headers that tell a proxy in front of the service to send another file or URL instead of this answer. */
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
/**
 * Authentication schemes with which a browser identifies its user to a trusted origin without asking.
 * They require one connection for several requests.
 */
const OF_CONNECTION_SCHEMES = /^\s*(negotiate|ntlm)\b/i;

/** Reads the head of an answer that is not an upgrade. Fails with `unavailable`. */
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

/**
 * Reads the head of an answer that upgrades the connection. Fails with `unavailable` for an unrequested
 * upgrade.
 */
export function readUpgradeHead(answer: IncomingMessage, asked: Asked): AnswerHead {
  if (!asked.isUpgrade) throw wrong(asked, 'its status is 101, and the request asked for no other protocol');
  const wanted = tokens(asked.request.headers.upgrade);
  const given = tokens(answer.headers.upgrade);
  if (given.size === 0 || [...given].some(protocol => !wanted.has(protocol))) {
    throw wrong(asked, 'it changes to a protocol that the request did not ask for');
  }
  const headers = ['Connection', 'Upgrade', 'Upgrade', answer.headers.upgrade as string];
  headers.push(...readHeaders(answer, asked));
  return { status: 101, reason: answer.statusMessage ?? '', headers };
}

/**
 * Returns the trailers of an answer for the client, as pairs. Omits fields that are not allowed in trailers.
 */
export function trailersForCaller(answer: IncomingMessage, headerChanges: HeaderChanges): [string, string][] {
  return pairsOf(answer.rawTrailers).filter(
    ([name, value]) =>
      TOKEN.test(name) &&
      !NO_TEXT.test(value) &&
      passed(name.toLowerCase(), value, headerChanges) === value &&
      !/^(set-cookie|content-)/i.test(name),
  );
}

/** Builds the error of an answer that cannot be passed to the client. */
export function wrong({ port }: Pick<Asked, 'port'>, what: string) {
  return unavailable(`the server on port ${port} sent an answer that cannot be forwarded: ${what}`);
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
    const shown = passed(lower, value, asked.headerChanges);
    if (shown !== undefined) sent.push(name, shown);
  }
  return sent;
}

/** Returns the value of a header for the client; undefined: the header is omitted. */
function passed(name: string, value: string, headerChanges: HeaderChanges): string | undefined {
  if (OF_CONNECTION.has(name) || OF_ORIGIN.has(name) || OF_PROXY.has(name) || name === 'x-trace-id') return undefined;
  if (name === 'www-authenticate') return OF_CONNECTION_SCHEMES.test(value) ? undefined : value;
  // Only the service may set its own cookie. The whole value is checked, because clients disagree about its
  // end.
  if (name === 'set-cookie') return headerChanges.setCookie(value);
  return name === 'location' || name === 'content-location' ? headerChanges.location(value) : value;
}

/** Returns true if the answer can have trailers. Node refuses to announce them in all other cases. */
function mayHaveTrailers({ headers, statusCode }: IncomingMessage, { request }: Asked): boolean {
  if (headers['content-length'] !== undefined || statusCode === 204 || statusCode === 304) return false;
  return request.method !== 'HEAD' && request.httpVersion === '1.1';
}

function pairsOf(flat: readonly string[]): [string, string][] {
  const found: [string, string][] = [];
  for (let at = 0; at < flat.length; at += 2) found.push([flat[at] as string, flat[at + 1] as string]);
  return found;
}
