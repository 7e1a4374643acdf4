import { type IncomingHttpHeaders, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { RequestHead } from '../request.ts';

/** A request that was read from its connection without `node:http`, with its whole body. */
export class PlainRequest implements RequestHead {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly socket: Socket;
  /** Undefined if the request has no body. */
  readonly body: Buffer | undefined;

  constructor({ method, url, headers }: PlainHead, socket: Socket, body: Buffer | undefined) {
    this.method = method;
    this.url = url;
    this.headers = headers;
    this.socket = socket;
    this.body = body;
  }
}

/** The head of a request whose meaning and end are unambiguous to every parser. */
export interface PlainHead {
  readonly method: string;
  readonly url: string;
  /** The headers in the form of `node:http`. */
  readonly headers: IncomingHttpHeaders;
  /** Length of the head, including the empty line. */
  readonly headBytes: number;
  readonly bodyBytes: number;
}

/** Longest head that is read here. `node:http` reads longer ones and enforces its limit. */
const MAX_HEAD_BYTES = 8 * 1024;
const MAX_HEADERS = 64;
const END = Buffer.from('\r\n\r\n');
/** Methods that do not imply an upgrade. */
const REQUEST_LINE = /^(GET|POST|PUT|DELETE|PATCH|HEAD|OPTIONS) (\/[!-~]*) HTTP\/1\.1$/;
/** Matches text that is not printable ASCII in lines that end with CRLF. */
const ODD_TEXT = /[^ -~\r\n]|\r(?!\n)|(?<!\r)\n/;
const NAME = /^[A-Za-z0-9-]+$/;
const LENGTH = /^(?:0|[1-9]\d{0,8})$/;
/** Headers that change how a request is framed, or how its connection is used. */
const UNUSUAL = new Set([
  ...['transfer-encoding', 'te', 'trailer', 'expect', 'upgrade', 'http2-settings', 'proxy-connection', 'keep-alive'],
]);

/**
 * Returns the head at the beginning of `bytes` without its empty line.
 * Returns null if the head is incomplete or longer than `MAX_HEAD_BYTES`.
 */
export function headTextOf(bytes: Buffer): string | null {
  const end = bytes.indexOf(END);
  return end < 0 || end > MAX_HEAD_BYTES ? null : bytes.toString('latin1', 0, end);
}

/**
 * Parses a head. Returns null for anything unusual, which `node:http` then decides about.
 * Unusual are another HTTP version, unexpected white space, a repeated header, or a header that changes the
 * framing of the body.
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

/** Adds a header line to `headers`. Returns false if the line is unusual. */
function addHeader(headers: Record<string, string>, line: string): boolean {
  const colon = line.indexOf(':');
  if (colon < 1) return false;
  const sent = line.slice(0, colon);
  const value = line.slice(line.charCodeAt(colon + 1) === SPACE ? colon + 2 : colon + 1);
  // Refuses an empty value, and a value with white space at its ends.
  if (value === '' || value.charCodeAt(0) === SPACE || value.charCodeAt(value.length - 1) === SPACE) return false;
  if (!NAME.test(sent)) return false;
  const name = sent.toLowerCase();
  if (Object.hasOwn(headers, name) || UNUSUAL.has(name)) return false;
  headers[name] = value;
  return true;
}

const SPACE = 0x20;

/** A character that would end the header line, or that HTTP does not allow in a header. */
const NO_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

/**
 * Answers a request that was read without `node:http`, in one piece.
 * Writes the same bytes as `node:http` would.
 */
export class PlainAnswer {
  statusCode = 200;
  headersSent = false;
  writableEnded = false;
  readonly #socket: Socket;
  readonly #keepAliveSeconds: number;
  readonly #done: () => void;
  #head = '';

  /** `done` is called when the answer has been written. */
  constructor(socket: Socket, keepAliveSeconds: number, done: () => void) {
    this.#socket = socket;
    this.#keepAliveSeconds = keepAliveSeconds;
    this.#done = done;
  }

  /**
   * Builds the head from alternating names and values, which must include `Content-Length`.
   * Throws a `TypeError` for a value that a header cannot contain. Nothing has happened then.
   */
  writeHead(status: number, headers: readonly string[]): this {
    let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`;
    for (let at = 0; at < headers.length; at += 2) {
      const value = headers[at + 1] as string;
      if (NO_VALUE.test(value)) throw new TypeError(`the value of ${headers[at]} cannot be a header's`);
      head += `${headers[at]}: ${value}\r\n`;
    }
    const keepAlive = this.#keepAliveSeconds > 0 ? `Keep-Alive: timeout=${this.#keepAliveSeconds}\r\n` : '';
    this.#head = `${head}Date: ${date()}\r\nConnection: keep-alive\r\n${keepAlive}\r\n`;
    this.statusCode = status;
    this.headersSent = true;
    return this;
  }

  end(content: string | Buffer): void {
    this.writableEnded = true;
    // A client that has closed its side gets no answer, as with `node:http`.
    if (this.#socket.writable) this.#write(content);
    this.#done();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #write(content: string | Buffer): void {
    if (typeof content === 'string') {
      this.#socket.write(this.#head + content);
      return;
    }
    this.#socket.cork();
    this.#socket.write(this.#head, 'latin1');
    this.#socket.write(content);
    this.#socket.uncork();
  }
}

let dateText = '';
let dateEndsMs = 0;

/** Returns the current date as header text. The text is cached for a second. */
function date(): string {
  const nowMs = Date.now();
  if (nowMs >= dateEndsMs || nowMs < dateEndsMs - 1000) {
    dateText = new Date(nowMs).toUTCString();
    dateEndsMs = nowMs - (nowMs % 1000) + 1000;
  }
  return dateText;
}
