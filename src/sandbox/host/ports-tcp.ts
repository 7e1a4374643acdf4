import net, { type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { LIMITS } from '../../core/limits.ts';
import { type PortForwarder, type PortTarget, portUse } from './port-forwarder.ts';

/** Takes connections on `hostPort` (0: any that is free) of the host's loopback and passes them on to `port` inside. Fails as `listen` does. */
export function forwardTcp(target: PortTarget, port: number, hostPort: number): Promise<PortForwarder> {
  const open = new Set<Socket>();
  const server = net.createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, outside => {
    outside.on('error', () => outside.destroy());
    if (open.size >= LIMITS.portConnections || portUse.connections >= LIMITS.portConnectionsInAll) {
      outside.resetAndDestroy();
      return;
    }
    open.add(outside);
    portUse.connections += 1;
    outside.once('close', () => {
      open.delete(outside);
      portUse.connections -= 1;
    });
    void pass(target, port, outside);
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host: '127.0.0.1', port: hostPort }, () => {
      server.off('error', reject);
      // One that runs out of descriptors takes the next connection when there are some.
      server.on('error', () => undefined);
      resolve({
        hostPort: (server.address() as AddressInfo).port,
        close: () => {
          server.close();
          for (const outside of open) outside.destroy();
        },
      });
    });
  });
}

async function pass(target: PortTarget, port: number, outside: Socket): Promise<void> {
  let inside: Duplex;
  try {
    inside = await connect(target, port, outside);
  } catch {
    // Nothing listens: the caller is told as if it had come there itself.
    outside.resetAndDestroy();
    return;
  }
  if (outside.destroyed) {
    inside.destroy();
    return;
  }
  inside.on('error', () => inside.destroy());
  inside.once('close', () => outside.destroy());
  outside.once('close', () => inside.destroy());
  inside.pipe(outside);
  outside.pipe(inside);
}

/** To the sandbox's address; what listens on its loopback only is reached from inside. */
async function connect(target: PortTarget, port: number, outside: Socket): Promise<Duplex> {
  const given = new AbortController();
  const timer = setTimeout(() => given.abort(), LIMITS.dialTimeoutMs);
  const onClose = () => given.abort();
  outside.once('close', onClose);
  try {
    if (target.address === null) return await target.dial(port, given.signal);
    return await connectToAddress(target.address, port, given.signal);
  } catch (error) {
    if (given.signal.aborted || target.address === null) throw error;
    return await target.dial(port, given.signal);
  } finally {
    clearTimeout(timer);
    outside.off('close', onClose);
  }
}

function connectToAddress(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port, allowHalfOpen: true, noDelay: true });
    const onAbort = () => socket.destroy(new Error('given up'));
    signal.addEventListener('abort', onAbort, { once: true });
    socket.once('error', error => {
      signal.removeEventListener('abort', onAbort);
      reject(error);
    });
    socket.once('connect', () => {
      signal.removeEventListener('abort', onAbort);
      resolve(socket);
    });
  });
}
