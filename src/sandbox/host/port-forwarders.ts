import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import net, { type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { LIMITS } from '../../core/limits.ts';
import { withDeadline } from '../../lib/deadline.ts';
import { connectTcp } from './connect-tcp.ts';

/** A sandbox with its own network. */
export interface PortTarget {
  readonly instanceId: string;
  /** Address of the sandbox on the host; null: the sandbox is reachable only from inside. */
  readonly address: string | null;
  /** Connects to `port` of the sandbox's loopback. */
  dial(port: number, signal: AbortSignal): Promise<Duplex>;
}

/** Counts the connections through all published ports of this process. Each takes two descriptors. */
export const portUse = { connections: 0 };

/** A port of the host that leads into a sandbox. */
export interface PortForwarder {
  readonly hostPort: number;
  /** Frees the port and ends its connections. */
  close(): void;
}

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

/**
 * Maximum number of a client's datagrams that wait until its socket is connected. Further ones are dropped.
 */
const MOST_EARLY = 64;

/** A client's socket to the inside, and its idle timer. */
interface Session {
  readonly inside: UdpSocket;
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
function sendWhenConnected(socket: UdpSocket, data: Buffer, isOpen: () => boolean): void {
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
function isBehind(socket: UdpSocket): boolean {
  return socket.getSendQueueSize() > LIMITS.portUdpQueueBytes;
}
