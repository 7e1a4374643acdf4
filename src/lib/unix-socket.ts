import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import net from 'node:net';
import { O_PATH } from './opened-path.ts';

/**
 * Connects to the unix socket at `path` and does not follow a symbolic link there. A writer to the directory
 * could otherwise redirect the connection to any socket of the machine. Connects by the descriptor that was
 * checked, so `path` may also exceed the kernel's limit (108 bytes). Errors arrive as the socket's `error`
 * event. `onread`: see `net.connect`.
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
  throw new Error('the path exists and is not a socket');
}
