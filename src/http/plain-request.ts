import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';

/** What the checks and handlers of a hot route look at: a request of `node:http`, or one that was read here. */
export interface RequestHead {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly socket: Socket;
}

/** A request that was read from its connection without `node:http`, with its whole body. */
export class PlainRequest implements RequestHead {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly socket: Socket;
  /** Undefined when there is none. */
  readonly body: Buffer | undefined;

  constructor({ method, url, headers }: PlainHead, socket: Socket, body: Buffer | undefined) {
    this.method = method;
    this.url = url;
    this.headers = headers;
    this.socket = socket;
    this.body = body;
  }
}

/** The head of a request about whose meaning and end no two parsers can differ. */
export interface PlainHead {
  readonly method: string;
  readonly url: string;
  /** As `node:http` would have them. */
  readonly headers: IncomingHttpHeaders;
  /** With the empty line. */
  readonly headBytes: number;
  readonly bodyBytes: number;
}

/** Heads above it are left to `node:http`, which has the bound. */
const MAX_HEAD_BYTES = 8 * 1024;
const MAX_HEADERS = 64;
const END = Buffer.from('\r\n\r\n');
/** Methods that are no upgrade by themselves. */
const REQUEST_LINE = /^(GET|POST|PUT|DELETE|PATCH|HEAD|OPTIONS) (\/[!-~]*) HTTP\/1\.1$/;
/** Printable ASCII, in lines that end as lines do. */
const ODD_TEXT = /[^ -~\r\n]|\r(?!\n)|(?<!\r)\n/;
const NAME = /^[A-Za-z0-9-]+$/;
const LENGTH = /^(?:0|[1-9]\d{0,8})$/;
/** Headers that change how a request is framed or what becomes of its connection. */
const UNUSUAL = new Set([
  ...['transfer-encoding', 'te', 'trailer', 'expect', 'upgrade', 'http2-settings', 'proxy-connection', 'keep-alive'],
]);

/** The head at the beginning of `bytes` without its empty line; null when it is not whole, or longer than is read here. */
export function headTextOf(bytes: Buffer): string | null {
  const end = bytes.indexOf(END);
  return end < 0 || end > MAX_HEAD_BYTES ? null : bytes.toString('latin1', 0, end);
}

/**
 * What a head says; null when anything about it is out of the ordinary: another version, white space
 * where clients put none, a header twice, one that changes how the body is framed. This decides nothing about such a request: `node:http` does.
 */
export function readPlainHead(text: string): PlainHead | null {
  if (ODD_TEXT.test(text)) return null;
  const lines = text.split('\r\n');
  if (lines.length > MAX_HEADERS) return null;
  const [, method, url] = REQUEST_LINE.exec(lines[0] as string) ?? [];
  if (method === undefined || url === undefined) return null;
  const headers: Record<string, string> = {};
  for (let at = 1; at < lines.length; at += 1) {
    if (!addHeader(headers, lines[at] as string)) return null;
  }
  const { host, connection, 'content-length': length } = headers;
  if (host === undefined) return null;
  if (connection !== undefined && connection.toLowerCase() !== 'keep-alive') return null;
  if (length !== undefined && !LENGTH.test(length)) return null;
  return {
    method,
    url,
    headers,
    headBytes: text.length + END.length,
    bodyBytes: length === undefined ? 0 : Number(length),
  };
}

/** False: it is out of the ordinary. */
function addHeader(headers: Record<string, string>, line: string): boolean {
  const colon = line.indexOf(':');
  if (colon < 1) return false;
  const sent = line.slice(0, colon);
  const value = line.slice(line.charCodeAt(colon + 1) === SPACE ? colon + 2 : colon + 1);
  // An empty value, and one with white space at its ends.
  if (value === '' || value.charCodeAt(0) === SPACE || value.charCodeAt(value.length - 1) === SPACE) return false;
  if (!NAME.test(sent)) return false;
  const name = sent.toLowerCase();
  if (Object.hasOwn(headers, name) || UNUSUAL.has(name)) return false;
  headers[name] = value;
  return true;
}

const SPACE = 0x20;
