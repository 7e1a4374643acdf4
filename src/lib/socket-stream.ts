import type { Readable, Writable } from 'node:stream';
import type { WebSocket } from 'ws';

/** Below the largest message that the service accepts. */
const MAX_MESSAGE_BYTES = 256 * 1024;

/**
 * Sends the chunks of `source` as binary messages, each after the previous one was sent. Calls `moved` after
 * each. Rejects when the socket or the source fails.
 */
export async function sendBinary(
  socket: WebSocket,
  source: Readable,
  moved: () => void = () => undefined,
  /** A prefix of each message: its first byte. */
  mark: Buffer | null = null,
): Promise<void> {
  // If the source is a duplex stream, its other half must stay open after the end.
  for await (const chunk of source.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer | string>) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    for (let at = 0; at < bytes.length; at += MAX_MESSAGE_BYTES) {
      const part = bytes.subarray(at, at + MAX_MESSAGE_BYTES);
      await send(socket, mark === null ? part : Buffer.concat([mark, part]));
      moved();
    }
  }
}

/** Sends one message. Resolves when the operating system has it. */
export function send(socket: WebSocket, data: Buffer | string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send(data, { binary: typeof data !== 'string' }, error => (error ? reject(error) : resolve()));
  });
}

/**
 * Writes binary messages to `sink`, and pauses the socket while `sink` is full. Passes text messages to
 * `onText`. Resumes a socket that was paused.
 */
export function receive(socket: WebSocket, sink: Writable, onText: (text: string) => void): void {
  const goOn = () => socket.resume();
  sink.on('drain', goOn).on('close', goOn);
  socket.on('message', (data: Buffer, isBinary) => {
    if (!isBinary) onText(data.toString());
    else if (socket.readyState === socket.OPEN && sink.writable && !sink.write(data)) socket.pause();
  });
  goOn();
}
