import net, { type Socket } from 'node:net';
import { deadlineExceeded, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { onAbort } from '../../lib/linked-signal.ts';

const CONNECT_TIMEOUT_MS = 5_000;

/**
 * A connection to `port` of `host`, each half of which ends for itself. When `signal` aborts, also later, it is destroyed with
 * `deadline_exceeded`. Fails with that, and with `unavailable` when nothing listens there or nobody answers in five seconds.
 */
export async function connectTcp(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  const socket = net.connect({ host, port, allowHalfOpen: true, noDelay: true });
  const connected = new Promise<Socket>((resolve, reject) => {
    // Stays: the user of the socket may not listen for errors yet, and sees that it is closed.
    socket.on('error', error => {
      const isKnown = error instanceof ServiceError;
      reject(isKnown ? error : unavailable(`nothing listens on port ${port}: ${messageOf(error)}`, { cause: error }));
    });
    socket.once('connect', () => resolve(socket));
  });
  const giveUp = () => socket.destroy(deadlineExceeded(`the connection to port ${port} was given up by its caller`));
  socket.once('close', onAbort(signal, giveUp));
  return await within(connected, CONNECT_TIMEOUT_MS, () => {
    const silence = unavailable(`port ${port} does not answer`);
    socket.destroy(silence);
    return silence;
  });
}
