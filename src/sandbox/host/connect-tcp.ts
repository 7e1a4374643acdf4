import net, { type Socket } from 'node:net';
import { deadlineExceeded, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { onAbort } from '../../lib/linked-signal.ts';

const CONNECT_TIMEOUT_MS = 5_000;

/**
 * A connection to `port` of `host`, each half of which ends for itself. When `signal` aborts, also later, it is destroyed with
 * `deadline_exceeded`. Fails with that, and with `unavailable` when nothing listens there or nobody answers in five seconds.
 */
export function connectTcp(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port, allowHalfOpen: true, noDelay: true });
    const timer = setTimeout(() => socket.destroy(unavailable(`port ${port} does not answer`)), CONNECT_TIMEOUT_MS);
    // Stays: whoever uses it may not listen for errors yet; it is closed then, which is seen.
    socket.on('error', error => {
      clearTimeout(timer);
      const isKnown = error instanceof ServiceError;
      reject(isKnown ? error : unavailable(`nothing listens on port ${port}: ${messageOf(error)}`, { cause: error }));
    });
    socket.once('connect', () => {
      clearTimeout(timer);
      resolve(socket);
    });
    const giveUp = () => socket.destroy(deadlineExceeded(`the connection to port ${port} was given up by its caller`));
    socket.once('close', onAbort(signal, giveUp));
  });
}
