import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { LIMITS } from '../../core/limits.ts';
import { type PortForwarder, portUse } from './port-forwarder.ts';

/**
 * Maximum number of a client's datagrams that wait until its socket is connected. Further ones are dropped.
 */
const MOST_EARLY = 64;

/** A client's socket to the inside, and its idle timer. */
interface Session {
  readonly inside: Socket;
  readonly idle: NodeJS.Timeout;
}

/**
 * Forwards datagrams to `hostPort` of the host's loopback to `port` of the sandbox's `address`, and answers
 * back.
 * With `hostPort` 0, any free port is used. A client's session ends after `LIMITS.portUdpIdleMs` of silence.
 * When there are too many sessions, the one silent the longest ends. Fails like `bind`.
 */
export function forwardUdp(address: string, port: number, hostPort: number): Promise<PortForwarder> {
  const outside = createSocket('udp4');
  const sessions = new Map<string, Session>();
  const end = (name: string) => {
    const session = sessions.get(name);
    if (session === undefined) return;
    sessions.delete(name);
    portUse.connections -= 1;
    clearTimeout(session.idle);
    session.inside.close();
  };
  /**
   * Opens a session. Returns null if other ports use up the total limit and this port has no session to end.
   */
  const begin = (name: string, caller: RemoteInfo): Session | null => {
    const [longestSilent] = sessions.keys();
    const isFull = sessions.size >= LIMITS.portUdpCallers || portUse.connections >= LIMITS.portConnectionsInAll;
    if (isFull && longestSilent !== undefined) end(longestSilent);
    else if (isFull) return null;
    portUse.connections += 1;
    const inside = createSocket('udp4').setMaxListeners(MOST_EARLY + 1);
    const idle = setTimeout(() => end(name), LIMITS.portUdpIdleMs);
    idle.unref();
    inside.on('message', data => {
      idle.refresh();
      if (sessions.get(name)?.inside !== inside || isBehind(outside)) return;
      outside.send(data, caller.port, caller.address);
    });
    // Nothing listens inside, or not yet: datagrams may be lost.
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
    if (session === null) return;
    // Keeps the map ordered by each client's last datagram.
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

/** Sends now, or after `connect`: that call binds the socket first, which takes a turn of the event loop. */
function sendWhenConnected(socket: Socket, data: Buffer, isOpen: () => boolean): void {
  try {
    socket.remoteAddress();
  } catch {
    if (socket.listenerCount('connect') >= MOST_EARLY) return;
    socket.once('connect', () => {
      if (isOpen()) socket.send(data);
    });
    return;
  }
  if (!isBehind(socket)) socket.send(data);
}

/** Checks whether the socket's send queue is too long, because a sender may be faster than the system. */
function isBehind(socket: Socket): boolean {
  return socket.getSendQueueSize() > LIMITS.portUdpQueueBytes;
}
