import type { Duplex } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import { messageOf } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { receive, send, sendBinary } from '../../lib/socket-stream.ts';
import { CLOSE, close, keepAlive } from '../web-socket.ts';

export interface Tunnel {
  /** The connection to the port in the sandbox. `serveTunnel` owns and closes it. */
  readonly connection: Duplex;
  /** True if a message reports the end of the inner server's bytes. Otherwise that end closes the tunnel. */
  readonly hasHalves: boolean;
  readonly signal: AbortSignal;
}

const END = JSON.stringify({ type: 'end' });

/** Passes binary messages of a WebSocket as bytes to a port in a sandbox, and bytes back as messages. */
export async function serveTunnel(socket: WebSocket, request: FastifyRequest, tunnel: Tunnel): Promise<void> {
  const { connection, hasHalves, signal } = tunnel;
  const moved = keepAlive(socket, LIMITS.channelIdleMs);
  let failure: Error | undefined;
  connection.on('error', (error: Error) => {
    failure = error;
  });
  receive(socket, connection, text => {
    if (isEnd(text)) connection.end();
    else close(socket, CLOSE.policy, 'a text message must be {"type":"end"}');
  });
  socket.on('message', moved);
  socket.once('close', () => connection.destroy());
  const hasClosed = new Promise(resolve => connection.once('close', resolve));
  try {
    await sendBinary(socket, connection, moved);
    if (hasHalves) {
      await send(socket, END);
      await hasClosed;
    }
    if (failure) throw failure;
    close(socket, CLOSE.normal);
  } catch (error) {
    if (signal.aborted) return;
    request.failure = `the byte channel broke off: ${messageOf(error)}`;
    close(socket, CLOSE.fault, messageOf(error));
  }
}

function isEnd(text: string): boolean {
  try {
    return (JSON.parse(text) as { type?: unknown } | null)?.type === 'end';
  } catch {
    return false;
  }
}
