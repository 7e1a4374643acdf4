import net, { type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { LIMITS } from '../../core/limits.ts';
import { withDeadline } from '../../lib/deadline.ts';
import { connectTcp } from './connect-tcp.ts';
import { type PortForwarder, type PortTarget, portUse } from './port-forwarder.ts';

/**
 * Forwards connections to `hostPort` of the host's loopback to `port` inside. Fails like `listen`.
 * With `hostPort` 0, any free port is used.
 */
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
      // A server that runs out of descriptors accepts again when some are free.
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
    // Nothing listens inside: the client sees the same reset as there.
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

/**
 * Connects to the sandbox's address.
 * A port that listens on the sandbox's loopback only is reached through a process inside.
 */
async function connect(target: PortTarget, port: number, outside: Socket): Promise<Duplex> {
  const left = new AbortController();
  const leave = () => left.abort();
  outside.once('close', leave);
  const dial = async (signal: AbortSignal) => {
    if (target.address === null) return await target.dial(port, signal);
    try {
      return await connectTcp(target.address, port, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      return await target.dial(port, signal);
    }
  };
  try {
    return await withDeadline(LIMITS.dialTimeoutMs, dial, left.signal);
  } finally {
    outside.off('close', leave);
  }
}
