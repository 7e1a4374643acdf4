import http, { type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MemorySandbox } from '../../../test/fakes/memory-sandbox.ts';
import { signatureOf } from '../e2b/sandboxes.ts';
import { Envd } from './envd.ts';

const TOKEN = 'the-token';
const METRICS = {
  cpuCount: 2,
  cpuUsedPct: 1.5,
  memTotal: 4 * 1024 * 1024,
  memUsed: 1024 * 1024,
  memCache: 3,
  diskUsed: 4,
  diskTotal: 5,
};

const NO_DEFAULTS = { user: '', workingDir: '' };

let inside: MemorySandbox;
let envd: Envd;
let server: http.Server;
let url: string;
let failures: string[];

beforeEach(async () => {
  inside = new MemorySandbox();
  envd = new Envd();
  failures = [];
  server = http.createServer((raw, response) => {
    const sandbox = {
      id: 'a1',
      token: TOKEN,
      environment: { FOO: 'bar' },
      metrics: async () => METRICS,
      defaults: NO_DEFAULTS,
    };
    const reportFailure = (text: string) => void failures.push(text);
    void envd.serve(raw, response, { url: raw.url ?? '', sandbox, access: inside.access, reportFailure });
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  envd.close();
  server.closeAllConnections();
  await new Promise(resolve => server.close(resolve));
});

type Init = Omit<RequestInit, 'headers'> & { readonly headers?: Record<string, string> };

const ask = (path: string, { headers, ...init }: Init = {}) =>
  fetch(url + path, { ...init, headers: { 'X-Access-Token': TOKEN, ...headers } });

async function call(method: string, message: object, headers: Record<string, string> = {}) {
  const answer = await ask(`/${method}`, {
    method: 'POST',
    body: JSON.stringify(message),
    headers: { 'Content-Type': 'application/json', ...headers },
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

function envelope(message: object, flags = 0): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

interface Received {
  readonly isEnd: boolean;
  readonly message: Record<string, unknown>;
}

/** A stream of the Connect protocol, whose messages a test reads one by one. */
class Stream {
  readonly #answer: IncomingMessage;
  readonly #pieces: AsyncIterator<Buffer>;
  #rest = Buffer.alloc(0);

  private constructor(answer: IncomingMessage) {
    this.#answer = answer;
    this.#pieces = answer[Symbol.asyncIterator]();
  }

  static async open(method: string, messages: readonly object[], headers: Record<string, string> = {}) {
    const request = http.request(`${url}/${method}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/connect+json', 'X-Access-Token': TOKEN, ...headers },
    });
    request.end(Buffer.concat(messages.map(each => envelope(each))));
    return new Stream(await new Promise<IncomingMessage>(resolve => request.once('response', resolve)));
  }

  async next(): Promise<Received> {
    for (;;) {
      const length = this.#rest.length < 5 ? undefined : 5 + this.#rest.readUInt32BE(1);
      if (length !== undefined && this.#rest.length >= length) {
        const message = JSON.parse(this.#rest.subarray(5, length).toString());
        const isEnd = this.#rest.readUInt8(0) === 2;
        this.#rest = this.#rest.subarray(length);
        return { isEnd, message };
      }
      const piece = await this.#pieces.next();
      if (piece.done) throw new Error('the answer has ended');
      this.#rest = Buffer.concat([this.#rest, piece.value]);
    }
  }

  async rest(): Promise<readonly Received[]> {
    const messages: Received[] = [];
    for (;;) {
      messages.push(await this.next());
      if (messages.at(-1)?.isEnd) return messages;
    }
  }

  leave(): void {
    this.#answer.destroy();
  }
}

const start = (args: readonly string[], more: object = {}) => ({ process: { cmd: '/bin/bash', args }, ...more });
const text = (base64: unknown) => Buffer.from(String(base64), 'base64').toString();

test('health needs no token, and answers pages of every origin', async () => {
  const answer = await fetch(`${url}/health`);
  expect(answer.status).toBe(204);
  expect(answer.headers.get('access-control-allow-origin')).toBe('*');
  const preflight = await fetch(`${url}/files`, {
    method: 'OPTIONS',
    headers: { 'Access-Control-Request-Headers': 'x-access-token' },
  });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get('access-control-allow-headers')).toBe('x-access-token');
});

test('everything except health needs the access token', async () => {
  for (const path of ['/envs', '/metrics', '/process.Process/List']) {
    const answer = await fetch(url + path, { headers: { 'X-Access-Token': 'other', 'X-API-Key': TOKEN } });
    expect([path, answer.status]).toEqual([path, 401]);
    expect(await answer.json()).toEqual({
      code: 401,
      message: 'unauthorized access, please provide a valid access token or method signing if supported',
    });
  }
  expect((await fetch(`${url}/files?path=a`)).status).toBe(401);
});

test('internal paths answer 404 with and without a token', async () => {
  for (const path of ['/init', '/freeze', '/process.Process/constructor', '/__proto__']) {
    expect((await fetch(url + path, { method: 'POST' })).status).toBe(404);
    expect((await ask(path, { method: 'POST' })).status).toBe(404);
  }
});

test('envs returns the variables of the create, and metrics the present use', async () => {
  expect(await (await ask('/envs')).json()).toEqual({ FOO: 'bar' });
  expect(await (await ask('/metrics')).json()).toEqual({
    ts: expect.any(Number),
    cpu_count: 2,
    cpu_used_pct: 1.5,
    mem_total: 4 * 1024 * 1024,
    mem_used: 1024 * 1024,
    mem_cache: 3,
    mem_total_mib: 4,
    mem_used_mib: 1,
    disk_used: 4,
    disk_total: 5,
  });
});

test('Start streams the output of a process and its exit code', async () => {
  inside.onStart = process => {
    process.print('stdout', 'out\n');
    process.print('stderr', Buffer.of(0xff, 0x00));
    process.end({ code: 3 });
  };
  const headers = { 'Connect-Timeout-Ms': '60000', Authorization: `Basic ${btoa('root:')}` };
  const stream = await Stream.open('process.Process/Start', [start(['-l'], { stdin: false, tag: 't' })], headers);
  expect(await stream.rest()).toEqual([
    { isEnd: false, message: { event: { start: { pid: 100 } } } },
    { isEnd: false, message: { event: { data: { stdout: btoa('out\n') } } } },
    { isEnd: false, message: { event: { data: { stderr: '/wA=' } } } },
    {
      isEnd: false,
      message: { event: { end: { exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' } } },
    },
    { isEnd: true, message: {} },
  ]);
  expect(inside.processes[0]?.request).toEqual({
    argv: ['/bin/bash', '-l'],
    workingDir: '',
    env: {},
    user: 'root',
    terminal: null,
    stdin: false,
    tag: 't',
    timeLimitMs: 60_000,
  });
});

test('a stream sends nothing before its message has arrived, because clients then stop sending', async () => {
  const headers = { 'Content-Type': 'application/connect+json', 'X-Access-Token': TOKEN };
  const request = http.request(`${url}/process.Process/Start`, { method: 'POST', headers });
  let hasAnswer = false;
  const answered = new Promise<IncomingMessage>(resolve => request.once('response', resolve));
  void answered.then(() => {
    hasAnswer = true;
  });
  request.flushHeaders();
  // The server has read the head of the request when it has answered a later one.
  expect((await ask('/envs')).status).toBe(200);
  const message = envelope(start([]));
  request.write(message.subarray(0, 7));
  expect((await ask('/envs')).status).toBe(200);
  expect(hasAnswer).toBe(false);
  request.end(message.subarray(7));
  (await answered).destroy();
});

test('an exit without an error has no error text, and a signal has its name', async () => {
  inside.onStart = process => process.end({ code: 0 });
  const [, end] = await (await Stream.open('process.Process/Start', [start([])])).rest();
  expect(end?.message).toEqual({ event: { end: { exitCode: 0, exited: true, status: 'exit status 0' } } });
  inside.onStart = process => process.end({ signal: 'SIGKILL' });
  const [, killed] = await (await Stream.open('process.Process/Start', [start([])])).rest();
  const status = 'signal: killed';
  expect(killed?.message).toEqual({ event: { end: { exitCode: -1, exited: false, status, error: status } } });
});

test('a process whose time is over ends its stream with deadline_exceeded', async () => {
  inside.onStart = process => process.end({ signal: 'SIGKILL', timedOut: true });
  const messages = await (await Stream.open('process.Process/Start', [start([])])).rest();
  expect(messages).toHaveLength(2);
  expect(messages[1]).toMatchObject({ isEnd: true, message: { error: { code: 'deadline_exceeded' } } });
});

test('a failed start is the last envelope of a stream with status 200', async () => {
  const cwd = await Stream.open('process.Process/Start', [{ process: { cmd: 'a', cwd: '/missing' } }]);
  expect(await cwd.rest()).toEqual([
    { isEnd: true, message: { error: { code: 'invalid_argument', message: "cwd '/missing' does not exist" } } },
  ]);
  const headers = { Authorization: `Basic ${btoa('nobody:x')}` };
  const user = await Stream.open('process.Process/Start', [start([])], headers);
  expect(await user.next()).toMatchObject({ message: { error: { code: 'unauthenticated' } } });
});

test('the end of the sandbox breaks a stream without a last envelope', async () => {
  const stream = await Stream.open('process.Process/Start', [start([])]);
  await stream.next();
  inside.processes[0]?.breakOff();
  await expect(stream.next()).rejects.toThrow('aborted');
  // A process that is killed by the end of its sandbox may report its end first.
  const second = await Stream.open('process.Process/Start', [start([])]);
  await second.next();
  inside.hasEnded = true;
  inside.processes[1]?.end({ signal: 'SIGKILL' });
  await expect(second.next()).rejects.toThrow('aborted');
});

test('a client that leaves ends its listening, not the process', async () => {
  const stream = await Stream.open('process.Process/Start', [start([])]);
  await stream.next();
  const [process] = inside.processes;
  const other = await Stream.open('process.Process/Connect', [{ process: { pid: 100 } }]);
  expect((await other.next()).message).toEqual({ event: { start: { pid: 100 } } });
  stream.leave();
  await expect.poll(() => process?.listeners).toBe(1);
  process?.print('stdout', 'later');
  expect(text(Object(Object((await other.next()).message.event).data).stdout)).toBe('later');
  process?.end({ code: 0 });
  await other.rest();
});

test('close breaks open streams, and the processes continue', async () => {
  const stream = await Stream.open('process.Process/Start', [start([])]);
  await stream.next();
  envd.close();
  await expect(stream.next()).rejects.toThrow('aborted');
  await expect.poll(() => inside.processes[0]?.listeners).toBe(0);
  expect(inside.processes[0]?.ended).toBeNull();
});

test('a keep-alive is sent when a process is silent', async () => {
  const stream = await Stream.open('process.Process/Start', [start([])], { 'Keepalive-Ping-Interval': '1' });
  await stream.next();
  expect((await stream.next()).message).toEqual({ event: { keepalive: {} } });
  inside.processes[0]?.end({ code: 0 });
  await stream.rest();
});

test('Connect ends with deadline_exceeded after its own time, and the process continues', async () => {
  const begun = await Stream.open('process.Process/Start', [start([])]);
  await begun.next();
  const headers = { 'Connect-Timeout-Ms': '50' };
  const stream = await Stream.open('process.Process/Connect', [{ process: { pid: 100 } }], headers);
  const messages = await stream.rest();
  expect(messages.at(-1)).toMatchObject({ isEnd: true, message: { error: { code: 'deadline_exceeded' } } });
  expect(inside.processes[0]?.ended).toBeNull();
  begun.leave();
});

test('List, SendInput, CloseStdin, Update and SendSignal reach the selected process', async () => {
  const config = { cmd: 'cat', envs: { A: '1' }, cwd: '/x' };
  const stream = await Stream.open('process.Process/Start', [{ process: config, tag: 'cat' }]);
  await stream.next();
  expect((await call('process.Process/List', {})).body).toEqual({
    processes: [{ config: { ...config, args: [] }, pid: 100, tag: 'cat' }],
  });
  const process = { tag: 'cat' };
  expect((await call('process.Process/SendInput', { process, input: { stdin: btoa('hi') } })).body).toEqual({});
  const pty = await call('process.Process/SendInput', { process, input: { pty: btoa('hi') } });
  expect(pty).toMatchObject({ status: 500, body: { code: 'internal' } });
  await call('process.Process/Update', { process, pty: { size: { cols: 100, rows: 30 } } });
  await call('process.Process/CloseStdin', { process });
  expect(inside.processes[0]?.received).toEqual(['hi', '100x30', '<closed>']);
  const signal = { process: { pid: 100 }, signal: 'SIGNAL_SIGTERM' };
  expect((await call('process.Process/SendSignal', signal)).body).toEqual({});
  expect(await call('process.Process/SendSignal', signal)).toMatchObject({ status: 404, body: { code: 'not_found' } });
  await stream.rest();
});

test('StreamInput writes each message in order', async () => {
  const stream = await Stream.open('process.Process/Start', [start([])]);
  await stream.next();
  const data = (input: string) => ({ data: { input: { stdin: btoa(input) } } });
  const messages = [{ start: { process: { pid: 100 } } }, data('a'), { keepalive: {} }, data('b')];
  expect(await (await Stream.open('process.Process/StreamInput', messages)).rest()).toEqual([
    { isEnd: false, message: {} },
    { isEnd: true, message: {} },
  ]);
  expect(inside.processes[0]?.received).toEqual(['a', 'b']);
  stream.leave();
});

test('the filesystem service creates, lists, moves and removes entries', async () => {
  expect((await call('filesystem.Filesystem/MakeDir', { path: 'd' })).body).toEqual({
    entry: {
      name: 'd',
      type: 'FILE_TYPE_DIRECTORY',
      path: '/home/user/d',
      size: '4096',
      mode: 0o755,
      permissions: 'drwxr-xr-x',
      owner: 'user',
      group: 'user',
      modifiedTime: '2023-11-14T22:13:20.500Z',
    },
  });
  expect(await call('filesystem.Filesystem/MakeDir', { path: 'd' })).toMatchObject({ status: 409 });
  const move = { source: 'd', destination: 'e' };
  expect((await call('filesystem.Filesystem/Move', move)).body).toMatchObject({ entry: { path: '/home/user/e' } });
  expect((await call('filesystem.Filesystem/ListDir', { path: '~', depth: 1 })).body).toMatchObject({
    entries: [{ name: 'e' }],
  });
  expect(await call('filesystem.Filesystem/Stat', { path: 'd' })).toMatchObject({ status: 404 });
  expect((await call('filesystem.Filesystem/Remove', { path: 'e' })).body).toEqual({});
});

test('a polled watcher returns the events since the last poll until it is removed', async () => {
  const { body } = await call('filesystem.Filesystem/CreateWatcher', { path: '~', recursive: true });
  const watcherId = String(body.watcherId);
  expect(inside.watches[0]?.options).toEqual({ user: '', recursive: true, withFacts: false });
  inside.watches[0]?.queue.push({ type: 'create', name: 'a' });
  inside.watches[0]?.queue.push({ type: 'chmod', name: 'a' });
  expect((await call('filesystem.Filesystem/GetWatcherEvents', { watcherId })).body).toEqual({
    events: [
      { name: 'a', type: 'EVENT_TYPE_CREATE' },
      { name: 'a', type: 'EVENT_TYPE_CHMOD' },
    ],
  });
  expect((await call('filesystem.Filesystem/GetWatcherEvents', { watcherId })).body).toEqual({ events: [] });
  expect((await call('filesystem.Filesystem/RemoveWatcher', { watcherId })).body).toEqual({});
  expect(inside.watches[0]?.isOpen).toBe(false);
  expect(await call('filesystem.Filesystem/GetWatcherEvents', { watcherId })).toMatchObject({ status: 404 });
});

test('a streamed watch reports events with entries, and ends when its client leaves', async () => {
  const message = { path: '/home/user', includeEntry: true };
  const stream = await Stream.open('filesystem.Filesystem/WatchDir', [message]);
  expect((await stream.next()).message).toEqual({ start: {} });
  const facts = await inside.statFile('/home/user', { user: '' });
  inside.watches[0]?.queue.push({ type: 'write', name: 'x', facts });
  expect((await stream.next()).message).toMatchObject({
    filesystem: { name: 'x', type: 'EVENT_TYPE_WRITE', entry: { path: '/home/user' } },
  });
  stream.leave();
  await expect.poll(() => inside.watches[0]?.isOpen).toBe(false);
});

test('invalid calls are refused with the code of the Connect protocol', async () => {
  const post = async (method: string, body: string | Buffer, headers: Record<string, string>) =>
    await ask(`/${method}`, { method: 'POST', body, headers });
  const json = { 'Content-Type': 'application/json' };
  expect((await post('filesystem.Filesystem/Stat', '{', json)).status).toBe(400);
  expect((await post('filesystem.Filesystem/Stat', '[]', json)).status).toBe(400);
  expect((await post('filesystem.Filesystem/Stat', '{"path":1}', json)).status).toBe(400);
  expect((await post('filesystem.Filesystem/Stat', '{}', { 'Content-Type': 'application/proto' })).status).toBe(415);
  expect((await post('filesystem.Filesystem/Stat', '{}', { ...json, 'Connect-Timeout-Ms': 'x' })).status).toBe(400);
  expect((await post('filesystem.Filesystem/Stat', '{}', { ...json, 'Content-Encoding': 'gzip' })).status).toBe(501);
  expect((await ask('/filesystem.Filesystem/Stat')).status).toBe(405);
  const large = Buffer.alloc(8 * 1024 * 1024 + 1, 0x20);
  expect((await post('filesystem.Filesystem/Stat', large, json)).status).toBe(429);
  const empty = await Stream.open('process.Process/Start', []);
  expect((await empty.next()).message).toMatchObject({ error: { code: 'invalid_argument' } });
});

test('an octet-stream upload is written to the path of the query, also compressed', async () => {
  const headers = { 'Content-Type': 'application/octet-stream', 'X-Metadata-Kind': 'x' };
  const plain = await ask('/files?path=d%2F1%202.txt', { method: 'POST', body: 'hello', headers });
  expect(await plain.json()).toEqual([
    { path: '/home/user/d/1 2.txt', name: '1 2.txt', type: 'file', metadata: { kind: 'x' } },
  ]);
  const packed = { ...headers, 'Content-Encoding': 'gzip' };
  const answer = await ask('/files?path=z&username=root', {
    method: 'POST',
    body: gzipSync('packed'),
    headers: packed,
  });
  expect(answer.status).toBe(200);
  expect(inside.files.get('/root/z')).toMatchObject({ owner: 'root', content: Buffer.from('packed') });
  const broken = await ask('/files?path=z', { method: 'POST', body: 'no gzip', headers: packed });
  expect(broken.status).toBe(400);
  expect((await ask('/files', { method: 'POST', body: 'x', headers })).status).toBe(400);
});

const form = (names: readonly string[]) =>
  `${names
    .map(name => `--B\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\nin ${name}\r\n`)
    .join('')}--B--\r\n`;
const FORM = { 'Content-Type': 'multipart/form-data; boundary=B' };

test('a multipart upload keeps the directories and odd characters of its file names', async () => {
  const names = ['d/1.txt', '%2e%2e', 'a%22b', '  lead', '#?&+;', 'ünï/日本', "it's", 'b\\c', '/abs'];
  const answer = await ask('/files', { method: 'POST', body: form(names), headers: FORM });
  expect(((await answer.json()) as { path: string }[]).map(({ path }) => path)).toEqual([
    '/home/user/d/1.txt',
    '/home/user/%2e%2e',
    '/home/user/a"b',
    '/home/user/  lead',
    '/home/user/#?&+;',
    '/home/user/ünï/日本',
    "/home/user/it's",
    '/home/user/b\\c',
    '/abs',
  ]);
  expect(inside.files.get('/home/user/d/1.txt')?.content?.toString()).toBe('in d/1.txt');
});

test('a multipart upload with a path in the query ignores the file name', async () => {
  const answer = await ask('/files?path=x', { method: 'POST', body: form(['y']), headers: FORM });
  expect(await answer.json()).toMatchObject([{ path: '/home/user/x' }]);
});

test('invalid uploads are refused, and the connection goes on', async () => {
  const upload = async (body: string, headers: Record<string, string> = FORM, query = '') => {
    const answer = await ask(`/files${query}`, { method: 'POST', body, headers });
    return [answer.status, ((await answer.json()) as { message?: string }).message];
  };
  expect(await upload(form(['a', 'a']))).toEqual([400, 'the path a is given twice']);
  expect(await upload(form(['']))).toEqual([400, 'a file has no name, and the query has no path']);
  expect((await upload('--B\r\nContent-Disp', FORM))[0]).toBe(400);
  expect((await upload('x', { 'Content-Type': 'multipart/form-data' }))[0]).toBe(400);
  expect(await upload('x', { 'Content-Type': 'text/plain' })).toEqual([400, 'unsupported content type: text/plain']);
  expect(await upload(form(['a']), FORM, '?path=/home')).toEqual([400, "path '/home' is a directory"]);
  expect((await upload(form(['a']), FORM, '?username=nobody'))[0]).toBe(401);
  const octets = { 'Content-Type': 'application/octet-stream' };
  expect((await upload('x', { ...octets, 'X-Metadata-A': 'é' }, '?path=a'))[0]).toBe(400);
  expect((await upload('x', { ...octets, 'X-Metadata-A': 'v'.repeat(4096) }, '?path=a'))[0]).toBe(400);
});

test('a download returns whole files, parts, empty files and files without a size', async () => {
  const put = (path: string, content: string) =>
    inside.files.set(path, { content: Buffer.from(content), owner: 'user', metadata: {} });
  put('/home/user/a.txt', '0123456789');
  put('/home/user/empty', '');
  put('/proc/version', 'Linux');
  const whole = await ask('/files?path=a.txt');
  expect([whole.status, await whole.text(), whole.headers.get('content-type')]).toEqual([
    200,
    '0123456789',
    'text/plain; charset=utf-8',
  ]);
  expect(whole.headers.get('content-disposition')).toBe('inline; filename="a.txt"');
  const part = await ask('/files?path=a.txt', { headers: { Range: 'bytes=2-4' } });
  expect([part.status, await part.text(), part.headers.get('content-range')]).toEqual([206, '234', 'bytes 2-4/10']);
  const since = { 'If-Modified-Since': whole.headers.get('last-modified') as string };
  expect((await ask('/files?path=a.txt', { headers: since })).status).toBe(304);
  const empty = await ask('/files?path=empty');
  expect([empty.status, empty.headers.get('content-length')]).toEqual([200, '0']);
  expect(await (await ask('/files?path=/proc/version')).text()).toBe('Linux');
  expect((await ask('/files?path=a.txt', { headers: { 'Accept-Encoding': 'identity;q=0' } })).status).toBe(406);
});

test('a file that shrinks before its first bytes are read is opened again', async () => {
  const put = (content: string) =>
    inside.files.set('/home/user/a', { content: Buffer.from(content), owner: 'user', metadata: {} });
  put('long');
  const open = inside.readFile.bind(inside);
  inside.readFile = async (...args) => {
    inside.readFile = open;
    const file = await open(...args);
    put('new');
    return { ...file, read: () => Readable.from([]) };
  };
  const answer = await ask('/files?path=a');
  expect([answer.status, await answer.text()]).toEqual([200, 'new']);
});

test('a download of a missing path is 404, and of a directory 400', async () => {
  const missing = await ask('/files?path=x');
  expect(missing.status).toBe(404);
  expect(await missing.json()).toEqual({ code: 404, message: "path '/home/user/x' does not exist" });
  expect((await ask('/files?path=/home')).status).toBe(400);
  expect(failures).toEqual(["path '/home/user/x' does not exist", "path '/home' is a directory"]);
});

test('a signature opens one operation on one path until it expires', async () => {
  inside.files.set('/home/user/a b', { content: Buffer.from('x'), owner: 'user', metadata: {} });
  const signed = async (
    made: Partial<Parameters<typeof signatureOf>[0]>,
    query: Record<string, string> = {},
    init: RequestInit = {},
  ) => {
    const url_ = { path: 'a b', operation: 'read', username: '', expiration: '', ...made } as const;
    const signature = signatureOf(url_, TOKEN);
    const { expiration } = url_;
    const all = { path: 'a b', signature, ...(expiration && { signature_expiration: expiration }), ...query };
    const answer = await fetch(`${url}/files?${new URLSearchParams(all)}`, init);
    return [answer.status, await answer.text()];
  };
  const future = String(Math.floor(Date.now() / 1000) + 1000);
  const refused = (message: string) => [401, JSON.stringify({ code: 401, message })];
  expect(await signed({})).toEqual([200, 'x']);
  expect(await signed({ expiration: future })).toEqual([200, 'x']);
  expect(await signed({ expiration: '1000' })).toEqual(refused('signature is already expired'));
  expect(await signed({ expiration: '1000' }, { signature_expiration: future })).toEqual(refused('invalid signature'));
  expect(await signed({ path: 'b' })).toEqual(refused('invalid signature'));
  expect(await signed({}, { username: 'root' })).toEqual(refused('invalid signature'));
  const write = { method: 'POST', body: form(['a']), headers: FORM };
  expect(await signed({}, {}, write)).toEqual(refused('invalid signature'));
  expect((await signed({ operation: 'write' }, {}, write))[0]).toBe(200);
  const both = await fetch(`${url}/files?path=a`, { headers: { 'X-Access-Token': 'wrong' } });
  expect(await both.json()).toEqual({ code: 401, message: 'access token present in header but does not match' });
});
