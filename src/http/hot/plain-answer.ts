import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';

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
