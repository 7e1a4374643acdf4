import http, { type RequestListener, type Server } from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import type { FrontendOptions } from '../../src/frontend/app.ts';
import { SPEC, type TestFrontend, testFrontend } from './frontend.ts';
import { HostAccess } from './host-access.ts';
import { newInstance } from './memory-instances.ts';

export const AGENT = newInstance(SPEC);

/** A frontend that listens, with one agent whose "inside" is this machine. */
export interface Bed extends TestFrontend {
  readonly url: string;
}

export async function bed(options: Partial<FrontendOptions> = {}): Promise<Bed> {
  const frontend = testFrontend(options);
  frontend.instances.put(AGENT);
  frontend.instances.inside = new HostAccess('/');
  return Object.assign(frontend, { url: await frontend.listen() });
}

/** The address of a port inside. */
export const at = (port: number, path = '/', query = '') =>
  `/serverless/v1/http${path}?instance=${AGENT.id}&port=${port}${query}`;

/** Says bytes to the frontend and answers everything that comes until it closes. */
export async function raw(it: Bed, bytes: string): Promise<string> {
  const socket = net.connect(Number(new URL(it.url).port), '127.0.0.1');
  socket.write(bytes, 'latin1');
  return await text(socket);
}

/** The servers that run in the "sandbox" of a test file. */
export class Inside {
  readonly servers: (Server | net.Server)[] = [];
  readonly sockets = new Set<Socket>();

  /** The port of an HTTP server. */
  http = (answer: RequestListener) => this.listen(http.createServer(answer));

  /** The port of a server that is given each connection. */
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

/** The URL of a tunnel to a port of the agent. */
export const tunnel = (it: Bed, port: number, query = '') =>
  `${it.url.replace('http', 'ws')}/serverless/v1/ws?instance=${AGENT.id}&port=${port}${query}`;
