import { once, setMaxListeners } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { receive, send, sendBinary } from '../../lib/socket-stream.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printError } from '../shared/print.ts';
import { resolveAgent } from './records.ts';

interface ForwardOptions extends ClientOptions {
  readonly namespace: string;
}

interface Forward {
  /** 0: any free port. */
  readonly local: number;
  readonly remote: number;
}

const HOST = '127.0.0.1';
const MAX_CONNECTIONS = 1000;
const END = JSON.stringify({ type: 'end' });

/**
 * Listens on ports of this machine and forwards each connection to a port inside the sandbox. Ends with
 * `io.signal`, or Ctrl-C.
 */
export async function forwardPorts(
  io: Io,
  given: string,
  ports: readonly string[],
  options: ForwardOptions,
): Promise<void> {
  const forwards = ports.map(parseForward);
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  await client.json('GET', `/api/agent/${encodeURIComponent(id)}`);
  // Each connection adds a listener.
  setMaxListeners(0, io.signal);
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  try {
    for (const forward of forwards) {
      const server = await listen(forward);
      servers.push(server);
      server.on('connection', socket => {
        sockets.add(socket);
        socket.once('close', () => sockets.delete(socket));
        void carry(io, client, socket, `/serverless/v1/ws?instance=${id}&port=${forward.remote}&half_close=true`);
      });
      io.out.write(`${HOST}:${(server.address() as AddressInfo).port} -> ${forward.remote}\n`);
    }
    if (!io.signal.aborted) await once(io.signal, 'abort');
  } finally {
    for (const server of servers) server.close();
    for (const socket of sockets) socket.destroy();
  }
}

async function listen({ local }: Forward): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  server.maxConnections = MAX_CONNECTIONS;
  try {
    server.listen(local, HOST);
    await once(server, 'listening');
    return server;
  } catch (error) {
    throw new CliError(
      `Port ${local} of this machine cannot be had (${(error as Error).message}). Name another: 8081:80.`,
    );
  }
}

/** Transfers bytes between one connection and its channel, until both sides have ended. */
async function carry(io: Io, client: Client, socket: Socket, path: string): Promise<void> {
  socket.on('error', () => socket.destroy());
  try {
    const channel = await client.webSocket(path);
    socket.once('close', () => channel.close());
    channel.once('close', (code: number, reason: Buffer) => {
      if (code !== 1000 && reason.length > 0 && !socket.destroyed) printError(io, reason.toString());
      socket.destroySoon();
    });
    receive(channel, socket, () => socket.end());
    await sendBinary(channel, socket);
    await send(channel, END);
  } catch (error) {
    // A refused channel is reported here. A channel that broke was reported when it closed.
    if (error instanceof CliError && !io.signal.aborted) printError(io, error.message);
    socket.destroySoon();
  }
}

function parseForward(text: string): Forward {
  const match = /^(?:(\d{1,5})?:)?(\d{1,5})$/.exec(text);
  const remote = Number(match?.[2]);
  const local = match?.[1] === undefined ? (text.startsWith(':') ? 0 : remote) : Number(match[1]);
  if (!match || remote < 1 || remote > 65_535 || local > 65_535) {
    throw usageError(`A port is written [LOCAL:]REMOTE, such as 8080 or 8081:80, not ${JSON.stringify(text)}.`);
  }
  return { local, remote };
}
