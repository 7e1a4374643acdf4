import { connect, type Socket } from 'node:net';
import { readAnswer } from './answer.ts';

export interface Ask {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly path: string;
  readonly token?: string | undefined;
  /** Value to send as JSON. */
  readonly body?: unknown;
}

export interface CallerAnswer {
  readonly status: number;
  /** Value of the header `Server-Timing`, or `''`. */
  readonly timing: string;
  readonly text: string;
}

const READ_BYTES = 16 * 1024;
const TIMING = /^server-timing: *(.*)$/im;

/**
 * HTTP client that keeps its connections open. It opens as many connections as there are requests at once.
 * It uses raw sockets. A client such as undici adds more than a millisecond to a create and its first call.
 * The service shares its processors with the client.
 */
export class Caller {
  readonly #host: string;
  readonly #port: number;
  readonly #idle: CallerConnection[] = [];

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.#host = hostname;
    this.#port = Number(port);
  }

  /** Sends one request and returns the answer. Rejects if the connection fails. */
  async ask(ask: Ask): Promise<CallerAnswer> {
    const connection = this.#open() ?? (await CallerConnection.open(this.#host, this.#port));
    const told = await connection.ask(this.#request(ask));
    if (connection.isOpen) this.#idle.push(connection);
    return told;
  }

  close(): void {
    for (const connection of this.#idle.splice(0)) connection.close();
  }

  /** Returns an idle connection that the server has not closed, or undefined. */
  #open(): CallerConnection | undefined {
    let last = this.#idle.pop();
    while (last !== undefined && !last.isOpen) last = this.#idle.pop();
    return last;
  }

  #request({ method, path, token, body }: Ask): string {
    const data = body === undefined ? '' : JSON.stringify(body);
    const authorization = token === undefined ? '' : `authorization: Bearer ${token}\r\n`;
    const content =
      data === '' ? '' : `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(data)}\r\n`;
    return `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}:${this.#port}\r\n${authorization}${content}\r\n${data}`;
  }
}

class CallerConnection {
  isOpen = true;
  readonly #socket: Socket;
  #rest: Buffer | undefined;
  #asked: { tell: (told: CallerAnswer) => void; fail: (error: Error) => void } | undefined;

  static open(host: string, port: number): Promise<CallerConnection> {
    return new Promise((resolve, reject) => {
      // One buffer for each connection. Otherwise Node.js allocates 64 KiB for each answer.
      const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
      const callback = (count: number) => {
        opened.#take(buffer.subarray(0, count));
        return true;
      };
      const socket = connect({ host, port, noDelay: true, onread: { buffer, callback } });
      const opened = new CallerConnection(socket);
      socket.once('error', reject);
      socket.once('connect', () => resolve(opened));
    });
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('error', error => this.#end(error));
    socket.on('close', () => this.#end(new Error('the connection ended before the answer')));
  }

  ask(request: string): Promise<CallerAnswer> {
    return new Promise((tell, fail) => {
      this.#asked = { tell, fail };
      this.#socket.write(request);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    const answer = readAnswer(bytes);
    // The next read overwrites the buffer, so the incomplete bytes are copied.
    this.#rest = answer === null ? Buffer.from(bytes) : undefined;
    if (answer === null) return;
    const asked = this.#asked;
    this.#asked = undefined;
    if (answer.closes) this.isOpen = false;
    asked?.tell({
      status: answer.status,
      timing: TIMING.exec(answer.head)?.[1] ?? '',
      text: bytes.toString('utf8', answer.bodyAt),
    });
  }

  #end(error: Error): void {
    this.isOpen = false;
    this.#asked?.fail(error);
    this.#asked = undefined;
  }
}
