import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const WAIT_MS = 20_000;

/** Code of an agent that serves on ports 8080 and 8053 and connects to the targets in its events. */
const AGENT = `
import socket, threading
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *ignored): pass
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.word.encode())

def echo(receiver):
    while True:
        data, caller = receiver.recvfrom(65536)
        receiver.sendto(data.upper(), caller)

def initialize(context):
    server = HTTPServer((context.env("LISTEN_ON") or "0.0.0.0", 8080), Handler)
    server.word = context.env("WORD") or "hello"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("0.0.0.0", 8053))
    threading.Thread(target=echo, args=(receiver,), daemon=True).start()

def connect(event, context):
    try:
        socket.create_connection((event["host"], event["port"]), 3).close()
        return "ok"
    except OSError as error:
        return type(error).__name__
`;

/** Code of an HTTP server that fetches the URL in the event. */
const SERVER = `
import json, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *ignored): pass
    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = urllib.request.urlopen(event["url"], timeout=5).read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`;

/** Outside address of this machine; the traffic of these tests does not leave the machine. */
const outside = Object.values(networkInterfaces())
  .flat()
  .find(one => one?.family === 'IPv4' && !one.internal)?.address;

interface Mapping {
  readonly protocol: string;
  readonly container_port: number;
  readonly host_ip: string;
  readonly host_port: number;
}

let bed: Bed;
beforeAll(async () => {
  bed = await Bed.start({ 'agent.py': AGENT, 'server.py': SERVER });
  mkdirSync(join(bed.codeDir, 'server'));
  const bootstrap = join(bed.codeDir, 'server', 'bootstrap');
  writeFileSync(bootstrap, '#!/bin/sh\nexec python3 /code/server.py\n');
  chmodSync(bootstrap, 0o755);
});
afterAll(() => bed[Symbol.asyncDispose]());

function create(name: string, env: object = {}): Promise<string> {
  const rootfs = { imageurl: 'host', ports: ['tcp:8080', 'udp:8053'] };
  const extendedHandler = { initializer: 'agent.initialize' };
  return bed.create(name, 'agent.connect', { rootfs, extendedHandler }, { env_vars: env });
}

const recordOf = async (id: string) =>
  (await bed.ask('GET', `/api/agent/${id}`)).body.instance as {
    readonly sandbox_ip: string;
    readonly status: string;
    readonly port_mappings: readonly Mapping[];
  };
const hostPort = (mappings: readonly Mapping[], protocol: string) =>
  mappings.find(mapping => mapping.protocol === protocol)?.host_port ?? 0;
const get = async (port: number) =>
  await (await fetch(`http://127.0.0.1:${port}/`, { signal: AbortSignal.timeout(WAIT_MS) })).text();

describeWith(['root', 'namespaces', 'networks'], 'agents with ports', () => {
  test('two agents listen on one port number, and each is reached through the port in its record', async () => {
    const [one, two] = await Promise.all([create('one', { WORD: 'one' }), create('two', { WORD: 'two' })]);
    for (const [id, word] of [
      [one, 'one'],
      [two, 'two'],
    ] as const) {
      const { port_mappings: mappings } = await recordOf(id);
      expect(mappings).toEqual([
        { protocol: 'tcp', container_port: 8080, host_ip: '127.0.0.1', host_port: expect.any(Number) },
        { protocol: 'udp', container_port: 8053, host_ip: '127.0.0.1', host_port: expect.any(Number) },
      ]);
      expect(await get(hostPort(mappings, 'tcp'))).toBe(word);
      expect(await askByDatagram(hostPort(mappings, 'udp'), word)).toBe(word.toUpperCase());
    }
    const { sandbox_ip: address, port_mappings: mappings } = await recordOf(two);
    const connect = async (host: string, port: number) => (await bed.invoke(one, { host, port })).body.data;
    expect(await connect('127.0.0.1', 8080)).toBe('ok');
    expect(await connect(address, 8080)).not.toBe('ok');
    expect(await connect('127.0.0.1', hostPort(mappings, 'tcp'))).toBe('ConnectionRefusedError');
    for (const url of [bed.server.frontendUrl, bed.server.metaUrl]) {
      expect(await connect('127.0.0.1', Number(new URL(url).port))).toBe('ConnectionRefusedError');
    }
    for (const id of [one, two]) await bed.ask('DELETE', `/api/agent/${id}`);
    await expect(get(hostPort(mappings, 'tcp'))).rejects.toThrow();
  });

  test('ports stay the same when the server is killed and when the agent is restarted', async () => {
    const id = await create('stays', { LISTEN_ON: '127.0.0.1' });
    const { port_mappings: before } = await recordOf(id);
    expect(await get(hostPort(before, 'tcp'))).toBe('hello');
    await bed.killAndRestart();
    await expect.poll(async () => (await recordOf(id)).status, { timeout: WAIT_MS }).toBe('RUNNING');
    await expect.poll(() => get(hostPort(before, 'tcp')).catch(() => ''), { timeout: WAIT_MS }).toBe('hello');
    expect(await askByDatagram(hostPort(before, 'udp'), 'again')).toBe('AGAIN');
    expect((await recordOf(id)).port_mappings).toEqual(before);
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
    expect((await recordOf(id)).port_mappings).toEqual(before);
    expect(await get(hostPort(before, 'tcp'))).toBe('hello');
    await bed.ask('DELETE', `/api/agent/${id}`);
    await expect(get(hostPort(before, 'tcp'))).rejects.toThrow();
  });
});

describeWith(['root', 'namespaces', 'networks'], 'HTTP servers with outside access', () => {
  test.skipIf(outside === undefined)('two HTTP servers fetch from the outside address of this machine', async () => {
    const origin = createServer((request, response) => response.end(JSON.stringify(`you asked for ${request.url}`)));
    origin.listen(0, outside);
    await once(origin, 'listening');
    try {
      const http = { runtime: 'http', codePath: '/code/server' };
      const [one, two] = await Promise.all([bed.create('first', '', http), bed.create('second', '', http)]);
      const base = `http://${outside}:${(origin.address() as AddressInfo).port}`;
      const answers = await Promise.all([
        bed.invoke(one, { url: `${base}/one` }),
        bed.invoke(two, { url: `${base}/two` }),
      ]);
      expect(answers.map(({ body }) => body.data)).toEqual(['you asked for /one', 'you asked for /two']);
      for (const id of [one, two]) await bed.ask('DELETE', `/api/agent/${id}`);
    } finally {
      origin.close();
      origin.closeAllConnections();
    }
  });
});

/** Sends the message repeatedly until an answer arrives, since a datagram may be lost. */
async function askByDatagram(port: number, message: string): Promise<string> {
  const socket = createSocket('udp4');
  const say = () => socket.send(message, port, '127.0.0.1');
  const again = setInterval(say, 200);
  try {
    say();
    const [data] = (await once(socket, 'message', { signal: AbortSignal.timeout(WAIT_MS) })) as [Buffer];
    return data.toString();
  } finally {
    clearInterval(again);
    socket.close();
  }
}
