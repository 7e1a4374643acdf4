import { closeSync, openSync } from 'node:fs';
import net from 'node:net';
import { basename, dirname } from 'node:path';

/** `sun_path` holds 108 bytes with its terminator (unix(7)). */
const MAX_SOCKET_PATH_BYTES = 107;

/**
 * Connects to a unix socket whose path may be longer than the kernel takes: then through its directory's entry under
 * `/proc/self/fd`. Errors come as the socket's `error` event. `onread`: see `net.connect`.
 */
export function connectUnix(path: string, onread?: net.OnReadOpts): net.Socket {
  const reading = onread === undefined ? {} : { onread };
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return net.connect({ path, ...reading });
  let directory: number;
  try {
    directory = openSync(dirname(path), 'r');
  } catch (error) {
    const socket = new net.Socket();
    process.nextTick(() => socket.destroy(error as Error));
    return socket;
  }
  const socket = net.connect({ path: `/proc/self/fd/${directory}/${basename(path)}`, ...reading });
  const release = () => {
    socket.off('connect', release);
    socket.off('close', release);
    closeSync(directory);
  };
  socket.once('connect', release);
  socket.once('close', release);
  return socket;
}
