import type { Readable, Writable } from 'node:stream';
import type { WebSocket } from 'ws';

/** Smaller than what the service takes as one message. */
const MAX_MESSAGE_BYTES = 256 * 1024;

/**
 * Sends what `source` yields as binary messages, each when the one before has been taken; `moved` learns of each. Rejects when the socket
 * or the source breaks.
 */
export async function sendBinary(
  socket: WebSocket,
  source: Readable,
  moved: () => void = () => undefined,
  /** The first byte of each message. */
  mark: Buffer | null = null,
): Promise<void> {
  // Its other half, if it has one, lives on behind the end of this one.
  for await (const chunk of source.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer | string>) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    for (let at = 0; at < bytes.length; at += MAX_MESSAGE_BYTES) {
      const part = bytes.subarray(at, at + MAX_MESSAGE_BYTES);
      await send(socket, mark === null ? part : Buffer.concat([mark, part]));
      moved();
    }
  }
}

/** Resolves when it has been handed to the system. */
export function send(socket: WebSocket, data: Buffer | string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send(data, { binary: typeof data !== 'string' }, error => (error ? reject(error) : resolve()));
  });
}

/** Writes binary messages to `sink`, and reads no further ones while it is full; texts go to `onText`. Resumes a socket that was paused. */
export function receive(socket: WebSocket, sink: Writable, onText: (text: string) => void): void {
  const goOn = () => socket.resume();
  sink.on('drain', goOn).on('close', goOn);
  socket.on('message', (data: Buffer, isBinary) => {
    if (!isBinary) onText(data.toString());
    else if (socket.readyState === socket.OPEN && sink.writable && !sink.write(data)) socket.pause();
  });
  goOn();
}
