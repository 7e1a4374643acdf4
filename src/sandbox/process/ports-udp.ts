import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { LIMITS } from '../../core/limits.ts';
import type { PortForwarder } from './port-forwarder.ts';

/** One caller: where it sends from, and the socket that the inside knows it by. */
interface Session {
  readonly inside: Socket;
  readonly idle: NodeJS.Timeout;
}

/**
 * Takes datagrams on `hostPort` (0: any that is free) of the host's loopback and passes them on to `port` of the sandbox's `address`, and the answers back to
 * whoever sent. A caller that is silent for a while is forgotten; so is the one silent the longest when there are too many.
 * Fails as `bind` does.
 */
export function forwardUdp(address: string, port: number, hostPort: number): Promise<PortForwarder> {
  const outside = createSocket('udp4');
  const sessions = new Map<string, Session>();
  const end = (name: string) => {
    const session = sessions.get(name);
    if (session === undefined) return;
    sessions.delete(name);
    clearTimeout(session.idle);
    session.inside.close();
  };
  const begin = (name: string, caller: RemoteInfo): Session => {
    const [longestSilent] = sessions.keys();
    if (sessions.size >= LIMITS.portUdpCallers && longestSilent !== undefined) end(longestSilent);
    const inside = createSocket('udp4');
    const idle = setTimeout(() => end(name), LIMITS.portUdpIdleMs);
    idle.unref();
    inside.on('message', data => {
      idle.refresh();
      if (sessions.get(name)?.inside === inside) outside.send(data, caller.port, caller.address);
    });
    // Nothing listens there, or not yet: datagrams may be lost.
    const session = { inside, idle };
    inside.on('error', () => {
      if (sessions.get(name) === session) end(name);
    });
    inside.connect(port, address);
    return session;
  };
  outside.on('message', (data, caller) => {
    const name = `${caller.address}:${caller.port}`;
    const session = sessions.get(name) ?? begin(name, caller);
    // The map is in the order of their last words.
    sessions.delete(name);
    sessions.set(name, session);
    session.idle.refresh();
    sendWhenConnected(session.inside, data, () => sessions.get(name) === session);
  });
  return new Promise((resolve, reject) => {
    outside.once('error', reject);
    outside.bind({ address: '127.0.0.1', port: hostPort, exclusive: true }, () => {
      outside.off('error', reject);
      outside.on('error', () => undefined);
      resolve({
        hostPort: outside.address().port,
        close: () => {
          outside.close();
          for (const name of [...sessions.keys()]) end(name);
        },
      });
    });
  });
}

/** `connect` of a datagram socket binds it first, which takes a turn of the event loop. */
function sendWhenConnected(socket: Socket, data: Buffer, isOpen: () => boolean): void {
  try {
    socket.remoteAddress();
  } catch {
    socket.once('connect', () => {
      if (isOpen()) socket.send(data);
    });
    return;
  }
  socket.send(data);
}
