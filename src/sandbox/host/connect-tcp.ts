import net, { type Socket } from 'node:net';
import { deadlineExceeded, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { onAbort } from '../../lib/linked-signal.ts';

const CONNECT_TIMEOUT_MS = 5_000;

/**
 * Connects to `port` of `host`; each direction of the connection ends separately.
 * Aborting `signal`, also later, destroys the connection with `deadline_exceeded`. Fails with that, and with
 * `unavailable` when nothing listens or no answer arrives within 5 s.
 */
export async function connectTcp(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  const socket = net.connect({ host, port, allowHalfOpen: true, noDelay: true });
  const connected = new Promise<Socket>((resolve, reject) => {
    // Never removed: the socket's user may not listen for errors yet, and still sees `close`.
    socket.on('error', error => {
      const isKnown = error instanceof ServiceError;
      reject(isKnown ? error : unavailable(`nothing listens on port ${port}: ${messageOf(error)}`, { cause: error }));
    });
    socket.once('connect', () => resolve(socket));
  });
  const giveUp = () => socket.destroy(deadlineExceeded(`the caller cancelled the connection to port ${port}`));
  socket.once('close', onAbort(signal, giveUp));
  return await within(connected, CONNECT_TIMEOUT_MS, () => {
    const silence = unavailable(`port ${port} does not answer`);
    socket.destroy(silence);
    return silence;
  });
}
