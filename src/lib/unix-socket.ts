import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import net from 'node:net';
import { O_PATH } from './opened-path.ts';

/**
 * Connects to the unix socket that stands at `path` itself: a symbolic link there is not followed, since who may write to the directory could
 * lead us to any socket of the machine. What was looked at is what is connected to, by its descriptor, so the path may be longer than the
 * kernel takes for one (108 bytes) too. Errors come as the socket's `error` event. `onread`: see `net.connect`.
 */
export function connectUnix(path: string, onread?: net.OnReadOpts): net.Socket {
  const reading = onread === undefined ? {} : { onread };
  let descriptor: number;
  try {
    descriptor = openSocket(path);
  } catch (error) {
    const socket = new net.Socket();
    process.nextTick(() => socket.destroy(error as Error));
    return socket;
  }
  const socket = net.connect({ path: `/proc/self/fd/${descriptor}`, ...reading });
  const release = () => {
    socket.off('connect', release);
    socket.off('close', release);
    closeSync(descriptor);
  };
  socket.once('connect', release);
  socket.once('close', release);
  return socket;
}

function openSocket(path: string): number {
  const descriptor = openSync(path, O_PATH | constants.O_NOFOLLOW);
  if (fstatSync(descriptor).isSocket()) return descriptor;
  closeSync(descriptor);
  throw new Error('what stands there is not a socket');
}
