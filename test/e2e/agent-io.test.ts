import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import http, { type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { Caller, refusedHandshake } from '../http/web-socket.ts';
import { Bed } from './agents.ts';

const SERVER = `
import http.server, json, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *ignored): pass
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": dict(self.headers.items())}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
def listen(event, context):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
def echo(event, context):
    return event
`;
const MEBIBYTE = 1024 * 1024;

let bed: Bed;
beforeAll(async () => {
  bed = await Bed.start({ 'server.py': SERVER }, { args: [STOP_AGENTS] });
});
afterAll(() => bed?.[Symbol.asyncDispose]());

const files = (id: string) => `${bed.server.frontendUrl}/api/agent/${id}/files`;
const webSocket = (path: string) => bed.server.frontendUrl.replace('http', 'ws') + path;
const terminal = (id: string, query: string) => webSocket(`/api/agent/${id}/exec?${query}`);
const inPort = (id: string, port: unknown, path = '/') => `/serverless/v1/http${path}?instance=${id}&port=${port}`;

async function upload(
  id: string,
  path: string,
  content: Blob,
  mode?: string,
): Promise<{ status: number; body: unknown }> {
  const form = new FormData();
  form.set('path', path);
  if (mode !== undefined) form.set('mode', mode);
  form.set('file', content, 'file.bin');
  const answer = await fetch(`${files(id)}/upload`, { method: 'POST', body: form });
  return { status: answer.status, body: await answer.json() };
}

async function exec(id: string, command: string): Promise<string> {
  const { body } = await bed.ask('POST', `/api/agent/${id}/exec`, { command });
  return String(body.stdout) + String(body.stderr);
}

const download = (id: string, path: string, init: RequestInit = {}) =>
  fetch(`${files(id)}/download?path=${encodeURIComponent(path)}`, init);

describe('files of agents', () => {
  test('an uploaded file keeps its content and mode, and a range of it can be downloaded', async () => {
    const id = await bed.create('files', 'server.echo');
    expect(await bed.ask('POST', `/api/agent/${id}/files/mkdir?path=/tmp/a/b&recursive=true&mode=750`)).toMatchObject({
      status: 200,
    });
    expect(await upload(id, '/tmp/a/b/', new Blob(['hällo']), '600')).toEqual({
      status: 200,
      body: { code: 200, path: '/tmp/a/b/file.bin', size: 6 },
    });
    expect(await exec(id, "stat -c '%a %n' /tmp/a/b /tmp/a/b/*; cat /tmp/a/b/*")).toBe(
      '750 /tmp/a/b\n600 /tmp/a/b/file.bin\nhällo',
    );
    const list = await bed.ask('GET', `/api/agent/${id}/files/list?path=/tmp/a&recursive=true`);
    expect(list.body).toMatchObject({
      files: [
        { path: '/tmp/a/b', type: 'directory', mode: '0750' },
        { path: '/tmp/a/b/file.bin', type: 'file', size: 6, mode: '0600' },
      ],
    });
    const part = await download(id, '/tmp/a/b/file.bin', { headers: { range: 'bytes=3-' } });
    expect(part.status).toBe(206);
    expect(await part.text()).toBe('llo');
  });

  test('each failure of a file request has its own status', async () => {
    const id = await bed.create('wrong', 'server.echo');
    expect((await download(id, '/tmp')).status).toBe(400);
    expect((await download(id, '/tmp/none')).status).toBe(404);
    expect((await upload(id, '/tmp/none/x', new Blob(['x']))).status).toBe(404);
    expect((await bed.ask('POST', `/api/agent/${id}/files/mkdir?path=/tmp`)).status).toBe(409);
    expect((await bed.ask('GET', `/api/agent/${id}/files/list?path=/etc/passwd`)).status).toBe(400);
  });

  test('a file of 64 MiB is uploaded and downloaded unchanged', async () => {
    const id = await bed.create('large', 'server.echo');
    const content = Buffer.alloc(64 * MEBIBYTE);
    for (let at = 0; at < content.length; at += 4096) content.writeUInt32LE(at, at);
    const digest = createHash('sha256').update(content).digest('hex');
    expect(await upload(id, '/tmp/large', new Blob([content]))).toMatchObject({
      status: 200,
      body: { size: content.length },
    });
    expect(await exec(id, 'sha256sum < /tmp/large')).toBe(`${digest}  -\n`);
    const back = Buffer.from(await (await download(id, '/tmp/large')).arrayBuffer());
    expect(createHash('sha256').update(back).digest('hex')).toBe(digest);
  });

  test('downloads whose clients stop reading do not grow the memory of the server', async () => {
    const id = await bed.create('slow', 'server.echo');
    await exec(id, 'truncate -s 512M /tmp/huge');
    const rssBytes = () => {
      const status = readFileSync(`/proc/${bed.server.pid}/status`, 'utf8');
      return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
    };
    const before = rssBytes();
    const readers = Array.from({ length: 8 }, () => http.get(`${files(id)}/download?path=/tmp/huge`));
    const answers = await Promise.all(
      readers.map(async each => ((await once(each, 'response')) as [IncomingMessage])[0]),
    );
    for (const answer of answers) answer.pause();
    let seen = -1;
    await vi.waitFor(
      () => {
        const now = Math.round(rssBytes() / MEBIBYTE);
        const isStill = now === seen;
        seen = now;
        expect(isStill).toBe(true);
      },
      { interval: 500, timeout: 20_000 },
    );
    expect(rssBytes() - before).toBeLessThan(96 * MEBIBYTE);
    for (const each of readers) each.on('error', () => undefined).destroy();
  });

  test('a restart ends a running download, and the agent serves afterwards', async () => {
    const id = await bed.create('restarted', 'server.echo');
    await exec(id, 'truncate -s 512M /tmp/huge');
    const answer = await download(id, '/tmp/huge');
    expect(answer.status).toBe(200);
    const rest = answer.arrayBuffer();
    rest.catch(() => undefined);
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
    await expect(rest).rejects.toThrow();
    expect((await download(id, '/tmp/huge')).status).toBe(404);
    expect((await bed.invoke(id, 1)).body.data).toBe(1);
  });
});

describe('the exec channel', () => {
  test('the exec channel with tty=true is a terminal: size, resize, Ctrl-C and the exit code work', async () => {
    const id = await bed.create('terminal', 'server.echo');
    const caller = await Caller.open(terminal(id, 'tty=true&cols=101&rows=31'));
    const shown = () => Buffer.concat(caller.messages).toString();
    caller.socket.send(Buffer.from('stty size; test -t 0 -a -t 1 -a -t 2 && echo "is"" one"\n'));
    await vi.waitFor(() => expect(shown()).toMatch(/31 101\r\nis one\r\n/), 10_000);
    caller.socket.send('{"type":"resize","cols":88,"rows":22}');
    caller.socket.send(Buffer.from('stty size\n'));
    await vi.waitFor(() => expect(shown()).toContain('22 88\r\n'), 10_000);
    caller.socket.send(Buffer.from('echo begi""ns; sleep 1000\n'));
    await vi.waitFor(() => expect(shown()).toContain('begins\r\n'), 10_000);
    // Sent repeatedly: before the shell waits for the program, the shell itself consumes the Ctrl-C.
    const interrupted = () => {
      caller.socket.send(Buffer.from('\x03echo al""ive\n'));
      expect(shown()).toContain('alive\r\n');
    };
    await vi.waitFor(interrupted, { timeout: 20_000, interval: 500 });
    caller.socket.send(Buffer.from('exit 5\n'));
    expect(await caller.closed).toMatchObject({ code: 1000 });
    expect(caller.texts).toEqual(['{"type":"exit","returncode":5}']);
  });

  test('the exec channel without a terminal separates both outputs and closes the input', async () => {
    const id = await bed.create('pipes', 'server.echo');
    const caller = await Caller.open(terminal(id, `command=${encodeURIComponent('wc -c; echo no >&2; exit 3')}`));
    caller.socket.send(Buffer.alloc(1_000_000));
    caller.socket.send('{"type":"stdin-end"}');
    expect(await caller.closed).toMatchObject({ code: 1000 });
    expect([caller.output(1), caller.output(2), caller.texts]).toEqual([
      '1000000\n',
      'no\n',
      ['{"type":"exit","returncode":3}'],
    ]);
  });

  test('the exec channel ends its processes when the client disconnects', async () => {
    const id = await bed.create('left', 'server.echo');
    const caller = await Caller.open(terminal(id, `command=${encodeURIComponent('sleep 43219 & sleep 43219')}`));
    // The counting command must not match its own pattern.
    const lines = String.raw`for each in /proc/[0-9]*/cmdline; do tr '\0' ' ' < $each; echo; done 2>/dev/null`;
    const count = async () => Number(await exec(id, `${lines} | grep -c '^sleep 4321[9]' || true`));
    await vi.waitFor(async () => expect(await count()).toBe(2), 10_000);
    caller.socket.terminate();
    await vi.waitFor(async () => expect(await count()).toBe(0), 10_000);
  });
});

describe('byte channels', () => {
  test('HTTP to a port keeps path, headers and body, and answers 502 when the port is closed', async () => {
    const id = await bed.create('http', 'server.listen');
    const port = (await bed.invoke(id)).body.data;
    const { status, body } = await bed.ask('GET', `${inPort(id, port, '/a%2Fb')}&x=1`, undefined, {
      headers: { 'x-own': 'yes' },
    });
    expect({ status, body }).toMatchObject({ status: 200, body: { path: '/a%2Fb?x=1', headers: { 'x-own': 'yes' } } });
    const posted = await fetch(bed.server.frontendUrl + inPort(id, port), {
      method: 'POST',
      body: Buffer.alloc(3 * MEBIBYTE, 1),
    });
    expect(posted.status).toBe(201);
    expect((await posted.arrayBuffer()).byteLength).toBe(3 * MEBIBYTE);
    expect(await bed.ask('GET', inPort(id, 1))).toMatchObject({
      status: 502,
      body: { message: 'nothing listens on port 1' },
    });
  });

  test('a tunnel carries bytes to a port, and answers 502 when the port is closed', async () => {
    const id = await bed.create('tunnel', 'server.listen');
    const port = (await bed.invoke(id)).body.data;
    const caller = await Caller.open(webSocket(`/serverless/v1/ws?instance=${id}&port=${port}`));
    caller.socket.send(Buffer.from('GET /here HTTP/1.0\r\n\r\n'));
    expect(await caller.closed).toEqual({ code: 1000, reason: '' });
    expect(Buffer.concat(caller.messages).toString()).toContain('"path": "/here"');
    expect(await refusedHandshake(webSocket(`/serverless/v1/ws?instance=${id}&port=1`))).toMatchObject({ status: 502 });
  });

  test('HTTP reaches a port of an instance of a function', async () => {
    const name = '0@io@listen';
    const register = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        name,
        kind: 'faas',
        runtime: bed.runtime,
        cpu: 500,
        memory: 256,
        storageType: 'local',
        codePath: bed.codeDir,
        handler: 'server.listen',
      },
      { meta: true },
    );
    const urn = String(register.body.functionVersionUrn);
    const called = await fetch(`${bed.server.frontendUrl}/serverless/v1/functions/${urn}/invocations`, {
      method: 'POST',
    });
    const port = await called.json();
    const instance = called.headers.get('x-instance-id') ?? '';
    expect(await bed.ask('GET', inPort(instance, port, '/f'))).toMatchObject({ status: 200, body: { path: '/f' } });
  });

  test('channels of a sandbox end when the sandbox ends', async () => {
    const id = await bed.create('gone', 'server.listen');
    const port = (await bed.invoke(id)).body.data;
    const caller = await Caller.open(webSocket(`/serverless/v1/ws?instance=${id}&port=${port}`));
    const shell = await Caller.open(terminal(id, 'command=cat'));
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    await Promise.all([caller.closed, shell.closed]);
    expect(await bed.ask('GET', inPort(id, port))).toMatchObject({
      status: 404,
      body: { message: `instance not found: ${id}` },
    });
  });

  test('channels are refused to pages of other origins and to foreign hosts', async () => {
    const id = await bed.create('origins', 'server.echo');
    const paths = [`/api/agent/${id}/exec?command=true`, `/serverless/v1/ws?instance=${id}&port=1`, inPort(id, 1)];
    for (const path of paths) {
      expect(await refusedHandshake(webSocket(path), { origin: 'http://evil.example' })).toMatchObject({ status: 403 });
      expect(await refusedHandshake(webSocket(path), { headers: { host: 'evil.example' } })).toMatchObject({
        status: 421,
      });
    }
  });
});

test('the commands cp, shell and port-forward work with an agent', async () => {
  const id = await bed.create('cli', 'server.listen');
  const port = (await bed.invoke(id)).body.data;
  const here = mkdtempSync(join(tmpdir(), 'rookery-io-'));
  const rookery = (...args: string[]) =>
    run(process.execPath, [join(ROOT, 'dist/main.js'), 'agent', ...args, '--address', bed.server.frontendUrl], {
      capture: true,
    });
  try {
    writeFileSync(join(here, 'a'), 'abc');
    symlinkSync('a', join(here, 'link'));
    for (let index = 0; index < 300; index++) writeFileSync(join(here, `many${index}`), String(index));
    expect(await rookery('cp', here, `${id}:/tmp/copy`)).toMatchObject({ code: 0 });
    expect(await rookery('cp', `${id}:/tmp/copy`, join(here, 'back'))).toMatchObject({ code: 0 });
    expect(readFileSync(join(here, 'back/a'), 'utf8')).toBe('abc');
    expect(readlinkSync(join(here, 'back/link'))).toBe('a');
    expect(readdirSync(join(here, 'back'))).toHaveLength(302);
    const main = join(ROOT, 'dist/main.js');
    const shell = [
      'agent',
      'shell',
      '--address',
      bed.server.frontendUrl,
      id,
      '--',
      'sh',
      '-c',
      'cat /tmp/copy/a; exit 9',
    ];
    expect(await run(process.execPath, [main, ...shell], { capture: true })).toMatchObject({ code: 9, output: 'abc' });
    const { spawn } = await import('node:child_process');
    const forward = spawn(process.execPath, [
      main,
      'agent',
      'port-forward',
      id,
      `:${port}`,
      '--address',
      bed.server.frontendUrl,
    ]);
    try {
      const [line] = await once(forward.stdout, 'data');
      const [, local] = /^127\.0\.0\.1:(\d+) -> /.exec(String(line)) ?? [];
      const socket = connect(Number(local), '127.0.0.1');
      socket.end('GET /forwarded HTTP/1.0\r\n\r\n');
      expect(await text(socket)).toContain('"path": "/forwarded"');
    } finally {
      const ended = once(forward, 'exit');
      forward.kill('SIGINT');
      await ended;
    }
  } finally {
    rmSync(here, { recursive: true, force: true });
  }
});
