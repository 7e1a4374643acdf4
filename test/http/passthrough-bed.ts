import http, { type RequestListener, type Server } from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import type { FrontendOptions } from '../../src/api/frontend-app.ts';
import { SPEC, type TestFrontend, testFrontend } from './frontend.ts';
import { HostAccess } from './host-access.ts';
import { newInstance } from './memory-instances.ts';

export const AGENT = newInstance(SPEC);

/** A listening frontend with one agent. The host stands in for its sandbox. */
export interface Bed extends TestFrontend {
  readonly url: string;
}

export async function bed(options: Partial<FrontendOptions> = {}): Promise<Bed> {
  const frontend = testFrontend(options);
  frontend.instances.put(AGENT);
  frontend.instances.inside = new HostAccess('/');
  return Object.assign(frontend, { url: await frontend.listen() });
}

/** Returns the passthrough path of a port in the sandbox. */
export const at = (port: number, path = '/', query = '') =>
  `/serverless/v1/http${path}?instance=${AGENT.id}&port=${port}${query}`;

/** Sends bytes to the frontend and returns everything received until the frontend closes. */
export async function raw(it: Bed, bytes: string): Promise<string> {
  const socket = net.connect(Number(new URL(it.url).port), '127.0.0.1');
  socket.write(bytes, 'latin1');
  return await text(socket);
}

/** Servers of a test file that stand in for programs in a sandbox. */
export class Inside {
  readonly servers: (Server | net.Server)[] = [];
  readonly sockets = new Set<Socket>();

  /** Starts an HTTP server; resolves with its port. */
  http = (answer: RequestListener) => this.listen(http.createServer(answer));

  /** Starts a TCP server that calls `serve` for each connection; resolves with its port. */
  tcp = (serve: (socket: Socket) => void) => this.listen(net.createServer({ allowHalfOpen: true }, serve));

  async listen(server: Server | net.Server): Promise<number> {
    this.servers.push(server);
    server.on('connection', (socket: Socket) => {
      this.sockets.add(socket);
      socket.on('error', () => undefined).once('close', () => this.sockets.delete(socket));
    });
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    return (server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    for (const server of this.servers.splice(0)) await new Promise(resolve => server.close(resolve));
  }
}

/** Returns the WebSocket URL of a tunnel to a port of the agent. */
export const tunnel = (it: Bed, port: number, query = '') =>
  `${it.url.replace('http', 'ws')}/serverless/v1/ws?instance=${AGENT.id}&port=${port}${query}`;
