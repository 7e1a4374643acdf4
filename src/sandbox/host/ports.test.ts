import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, expect, test, vi } from 'vitest';
import { LIMITS } from '../../core/limits.ts';
import { createLogger } from '../../telemetry/logger.ts';
import { type PortTarget, portUse } from './port-forwarders.ts';
import { PublishedPorts } from './ports.ts';

const RETRY_MS = 5_000;

const servers: net.Server[] = [];
const opened: PublishedPorts[] = [];

afterEach(() => {
  vi.useRealTimers();
  for (const ports of opened.splice(0)) ports.closeAll();
  for (const server of servers.splice(0)) server.close();
});

function newPorts(): PublishedPorts {
  const ports = new PublishedPorts(createLogger({ level: 'silent', format: 'json' }));
  opened.push(ports);
  return ports;
}

/** Starts a server that replies with `word` and the received text when the client has finished. */
async function listen(word: string, port = 0): Promise<number> {
  const server = net.createServer({ allowHalfOpen: true }, socket => {
    let said = '';
    socket.setEncoding('utf8').on('data', part => {
      said += part;
    });
    socket.on('error', () => undefined).on('end', () => socket.end(word + said));
  });
  servers.push(server);
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

function targetOf(instanceId: string, changes: Partial<PortTarget> = {}): PortTarget {
  const dial = () => Promise.reject(new Error('nothing listens'));
  return { instanceId, address: '127.0.0.1', dial, ...changes };
}

async function ask(port: number, message: string): Promise<string> {
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.end(message);
  return await text(socket);
}

test('each direction of a forwarded connection ends separately', async () => {
  const ports = newPorts();
  const [mapping] = await ports.open(targetOf('a'), [{ protocol: 'tcp', port: await listen('heard ') }]);
  expect(await ask(mapping?.hostPort ?? 0, 'all of it')).toBe('heard all of it');
});

test('a port that the address does not reach is dialled from inside the sandbox', async () => {
  const inside = await listen('dialled ');
  const dial = async (port: number) => {
    expect(port).toBe(8080);
    const socket = net.connect({ port: inside, host: '127.0.0.1', allowHalfOpen: true });
    await once(socket, 'connect');
    return socket;
  };
  // These tests have no listener at this address.
  const target = targetOf('a', { address: '127.200.0.1', dial });
  const [mapping] = await newPorts().open(target, [{ protocol: 'tcp', port: 8080 }]);
  expect(await ask(mapping?.hostPort ?? 0, 'x')).toBe('dialled x');
});

test('closing a published port ends its connections and frees the port', async () => {
  const ports = newPorts();
  const [mapping] = await ports.open(targetOf('a'), [{ protocol: 'tcp', port: await listen('') }]);
  const caller = net.connect(mapping?.hostPort ?? 0, '127.0.0.1');
  caller.on('error', () => undefined);
  await once(caller, 'connect');
  const closed = once(caller, 'close');
  ports.close('a');
  await closed;
  expect(ports.has('a')).toBe(false);
  expect(await listen('', mapping?.hostPort)).toBe(mapping?.hostPort);
});

test('the end of an earlier sandbox does not close the ports of its successor', async () => {
  const ports = newPorts();
  const port = await listen('heard ');
  let end: () => void = () => undefined;
  await ports.open(targetOf('a'), [{ protocol: 'tcp', port }]);
  const ended = new Promise<void>(resolve => {
    end = resolve;
  });
  ports.closeAfter('a', ended);
  ports.close('a');
  const [mapping] = await ports.open(targetOf('a'), [{ protocol: 'tcp', port }]);
  end();
  await ended;
  expect(await ask(mapping?.hostPort ?? 0, 'x')).toBe('heard x');
});

test('an instance gets its former ports again, or others when those are in use', async () => {
  const ports = newPorts();
  const wanted = [{ protocol: 'tcp', port: 8080 } as const, { protocol: 'udp', port: 8080 } as const];
  const before = await ports.open(targetOf('a'), wanted);
  ports.close('a');
  expect(await ports.open(targetOf('a'), wanted)).toEqual(before);
  ports.close('a');
  await listen('', before[0]?.hostPort);
  const [tcp, udp] = await ports.open(targetOf('a'), wanted);
  expect(tcp?.hostPort).not.toBe(before[0]?.hostPort);
  expect(udp).toEqual(before[1]);
});

test('a port of an earlier server that is in use is opened once it is free', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const port = await listen('heard ');
  const hostPort = await listen('somebody else ');
  const ports = newPorts();
  await ports.reopen(targetOf('a'), [{ protocol: 'tcp', containerPort: port, hostIp: '127.0.0.1', hostPort }]);
  expect(await ask(hostPort, '')).toBe('somebody else ');
  const other = servers.pop();
  other?.close();
  if (other) await once(other, 'close');
  vi.advanceTimersByTime(RETRY_MS);
  vi.useRealTimers();
  await expect.poll(() => ask(hostPort, 'x').catch(() => '')).toBe('heard x');
});

test('connections through all published ports share one bound, and an end frees one', async () => {
  const limits = LIMITS as { portConnectionsInAll: number };
  const { portConnectionsInAll } = limits;
  const ports = newPorts();
  const inside = await listen('heard ');
  const [one] = await ports.open(targetOf('a'), [{ protocol: 'tcp', port: inside }]);
  const [two] = await ports.open(targetOf('b'), [{ protocol: 'tcp', port: inside }]);
  try {
    limits.portConnectionsInAll = 1;
    const caller = net.connect(one?.hostPort ?? 0, '127.0.0.1');
    caller.write('x');
    await vi.waitFor(() => expect(portUse.connections).toBe(1));
    await expect(ask(two?.hostPort ?? 0, 'y')).rejects.toThrow();
    caller.destroy();
    await vi.waitFor(() => expect(portUse.connections).toBe(0));
    expect(await ask(two?.hostPort ?? 0, 'y')).toBe('heard y');
  } finally {
    limits.portConnectionsInAll = portConnectionsInAll;
  }
  await vi.waitFor(() => expect(portUse.connections).toBe(0));
});

test('UDP clients count towards the limit, at which a new client replaces a silent client of its own port only', async () => {
  const limits = LIMITS as { portConnectionsInAll: number };
  const { portConnectionsInAll } = limits;
  const echo = createSocket('udp4');
  echo.on('message', (data, { port, address }) => echo.send(data, port, address)).bind(0, '127.0.0.1');
  await once(echo, 'listening');
  const ports = newPorts();
  const wanted = [{ protocol: 'udp', port: echo.address().port } as const];
  const [one] = await ports.open(targetOf('a'), wanted);
  const [two] = await ports.open(targetOf('b'), wanted);
  const callers = [createSocket('udp4'), createSocket('udp4'), createSocket('udp4')] as const;
  const heard = [0, 0, 0];
  callers.forEach((caller, index) => {
    caller.on('message', () => {
      heard[index] = (heard[index] ?? 0) + 1;
    });
  });
  try {
    limits.portConnectionsInAll = 1;
    callers[0].send('x', one?.hostPort ?? 0, '127.0.0.1');
    await vi.waitFor(() => expect(heard[0]).toBe(1));
    callers[1].send('x', two?.hostPort ?? 0, '127.0.0.1');
    await vi.waitFor(() => {
      callers[2].send('x', one?.hostPort ?? 0, '127.0.0.1');
      expect(heard[2]).toBeGreaterThan(0);
    });
    expect(heard[1]).toBe(0);
    expect(portUse.connections).toBe(1);
  } finally {
    limits.portConnectionsInAll = portConnectionsInAll;
    for (const socket of [...callers, echo]) socket.close();
    ports.closeAll();
  }
  expect(portUse.connections).toBe(0);
});
