import { once } from 'node:events';
import { type ClientOptions, WebSocket } from 'ws';

/** A WebSocket client that stores every received message. */
export class Caller {
  readonly socket: WebSocket;
  readonly messages: Buffer[] = [];
  readonly texts: string[] = [];
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;

  private constructor(socket: WebSocket) {
    this.socket = socket;
    this.closed = once(socket, 'close').then(([code, reason]) => ({ code, reason: String(reason) }));
    socket.on('error', () => undefined);
    socket.on('message', (data: Buffer, isBinary) => {
      if (isBinary) this.messages.push(data);
      else this.texts.push(data.toString());
    });
  }

  static async open(url: string, options: ClientOptions = {}): Promise<Caller> {
    const socket = new WebSocket(url, { perMessageDeflate: false, ...options });
    const caller = new Caller(socket);
    await once(socket, 'open');
    return caller;
  }

  /** Returns the binary messages that begin with the byte `mark`, without that byte. */
  outputs(mark: number): Buffer[] {
    return this.messages.filter(message => message[0] === mark).map(message => message.subarray(1));
  }

  output(mark: number): string {
    return Buffer.concat(this.outputs(mark)).toString();
  }
}

/** Returns the answer to a refused handshake. Rejects if the server accepts the handshake. */
export function refusedHandshake(url: string, options: ClientOptions = {}): Promise<{ status: number; body: unknown }> {
  const socket = new WebSocket(url, options);
  return new Promise((resolve, reject) => {
    socket.on('open', () => {
      socket.terminate();
      reject(new Error('the handshake was accepted'));
    });
    socket.on('error', reject);
    socket.on('unexpected-response', async (_request, answer) => {
      let text = '';
      for await (const chunk of answer) text += chunk;
      resolve({ status: answer.statusCode ?? 0, body: text === '' ? undefined : JSON.parse(text) });
    });
  });
}
