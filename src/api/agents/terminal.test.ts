import { once } from 'node:events';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable, Writable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { HostAccess } from '../../../test/http/host-access.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { Caller, refusedHandshake } from '../../../test/http/web-socket.ts';
import { permissionDenied, resourceExhausted } from '../../core/error.ts';
import type { OpenExec } from '../../sandbox/access.ts';

const AGENT = newInstance(SPEC);
const EXEC = `/api/agent/${AGENT.id}/exec`;
let root: string;
beforeAll(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'rookery-terminal-')));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

interface Bed extends TestFrontend {
  readonly inside: HostAccess;
  readonly url: string;
}

async function bed(options: Parameters<typeof testFrontend>[0] = {}): Promise<Bed> {
  const frontend = testFrontend(options);
  const inside = new HostAccess(root);
  frontend.instances.put(AGENT);
  frontend.instances.inside = inside;
  const url = (await frontend.listen()).replace('http', 'ws') + EXEC;
  return Object.assign(frontend, { inside, url });
}

const command = (...argv: string[]) => `?command=${encodeURIComponent(JSON.stringify(argv))}`;

describe('exec without a terminal', () => {
  test('output without a terminal names its stream, and the end has the return code', async () => {
    await using it = await bed();
    const caller = await Caller.open(`${it.url}${command('sh', '-c', 'echo out; echo err >&2; exit 3')}`);
    expect(await caller.closed).toEqual({ code: 1000, reason: '' });
    expect(caller.texts).toEqual(['{"type":"exit","returncode":3}']);
    expect(caller.output(1)).toBe('out\n');
    expect(caller.output(2)).toBe('err\n');
    expect(it.inside.execs).toMatchObject([{ terminal: null, workingDir: '', env: {} }]);
  });

  test('binary messages are the input of the command, and stdin-end ends the input', async () => {
    await using it = await bed();
    const caller = await Caller.open(`${it.url}${command('cat')}`);
    caller.socket.send(Buffer.from('one '));
    caller.socket.send(Buffer.from([0, 255]));
    caller.socket.send('{"type":"stdin-end"}');
    caller.socket.send(Buffer.from('what comes after the end is dropped'));
    expect(await caller.closed).toMatchObject({ code: 1000 });
    expect(Buffer.concat(caller.outputs(1))).toEqual(Buffer.from('one \0\xff', 'latin1'));
  });

  test('a large output arrives completely', async () => {
    await using it = await bed();
    const caller = await Caller.open(`${it.url}?command=${encodeURIComponent('head -c 5000000 /dev/zero')}`);
    await caller.closed;
    expect(Buffer.concat(caller.outputs(1)).length).toBe(5_000_000);
  });
});

describe('the query of a terminal', () => {
  const shell = ['/bin/sh', '-c', expect.stringContaining('bash -l')];
  test.each([
    ['', { argv: shell }],
    ['?command=', { argv: shell }],
    ['?command=echo%20$HOME', { argv: ['/bin/sh', '-c', 'echo $HOME'] }],
    ['?command=%5B%20-f%20x%20%5D', { argv: ['/bin/sh', '-c', '[ -f x ]'] }],
    ['?command=echo&command=a%20b', { argv: ['echo', 'a b'] }],
    ['?command=%5B%22true%22%2C%22%22%5D', { argv: ['true', ''] }],
    ['?command=true&working_dir=/&env=A%3D1&env=B%3Dx%3Dy', { workingDir: '/', env: { A: '1', B: 'x=y' } }],
    ['?command=true&tty=true', { terminal: { columns: 80, rows: 24 }, env: { TERM: 'xterm-256color' } }],
    [
      '?command=true&tty=true&cols=100&rows=30&env=TERM%3Dvt100',
      { terminal: { columns: 100, rows: 30 }, env: { TERM: 'vt100' } },
    ],
  ])('the query "%s" selects the command, its environment and its terminal', async (query, wanted) => {
    await using it = await bed();
    const caller = await Caller.open(it.url + query);
    caller.socket.send('{"type":"stdin-end"}');
    await caller.closed;
    expect(it.inside.execs).toMatchObject([wanted]);
  });

  test.each([
    ['?command=%5B1%5D', 'command must be a JSON list of texts, got "[1]"'],
    ['?command=%5B%5D', 'command must be a command that names a program, got "[]"'],
    ['?command=&command=a', 'command must be a command that names a program, got " a"'],
    ['?command=a%00', 'a text must not contain a NUL character'],
    ['?tty=yes', 'tty must be true or false, got "yes"'],
    ['?cols=0', 'cols must be an integer from 1 to 65535, got "0"'],
    ['?rows=65536', 'rows must be an integer from 1 to 65535, got "65536"'],
    ['?env=A', 'env must be NAME=value, got "A"'],
    ['?env=ROOKERY_X%3D1', 'env ROOKERY_X cannot be set: names that begin with ROOKERY_ belong to the platform'],
    ['?working_dir=%00', 'working_dir must not contain a NUL character'],
  ])('the query "%s" is answered 400, and no command runs', async (query, message) => {
    await using it = await bed();
    const body = { code: 400, message: `invalid query: ${message}` };
    expect(await refusedHandshake(it.url + query)).toMatchObject({ status: 400, body });
    expect(it.inside.execs).toEqual([]);
  });
});

describe('exec with a terminal', () => {
  test('output of a terminal arrives unchanged, and the size reaches the sandbox', async () => {
    await using it = await bed();
    const caller = await Caller.open(`${it.url}${command('cat')}&tty=true`);
    caller.socket.send('{"type":"resize","cols":120,"rows":40}');
    caller.socket.send(Buffer.from('hello'));
    await vi.waitFor(() => expect(Buffer.concat(caller.messages).toString()).toBe('hello'));
    caller.socket.send('{"type":"stdin-end"}');
    await caller.closed;
    expect(it.inside.sizes).toEqual([{ columns: 120, rows: 40 }]);
  });

  test.each([
    ['hello', 'a text message must be JSON'],
    ['null', 'the type of a text message must be resize or stdin-end'],
    ['{"type":"dance"}', 'the type of a text message must be resize or stdin-end'],
    ['{"type":"resize","cols":0,"rows":1}', 'resize: cols and rows must be integers from 1 to 65535'],
    ['{"type":"resize","cols":"80","rows":1}', 'resize: cols and rows must be integers from 1 to 65535'],
  ])('the message %s closes the terminal with 1008', async (message, reason) => {
    await using it = await bed();
    const caller = await Caller.open(`${it.url}${command('cat')}`);
    caller.socket.send(message);
    expect(await caller.closed).toEqual({ code: 1008, reason });
    await vi.waitFor(() => expect(it.inside.running).toBe(0));
  });
});

test('the command ends when its client disconnects', async () => {
  await using it = await bed();
  const caller = await Caller.open(`${it.url}${command('sleep', '1000')}`);
  expect(it.inside.running).toBe(1);
  caller.socket.terminate();
  await vi.waitFor(() => expect(it.inside.running).toBe(0));
});

test('the terminal closes with 1001 when the server ends', async () => {
  await using it = await bed();
  const caller = await Caller.open(`${it.url}${command('sleep', '1000')}`);
  await it.app.close();
  expect(await caller.closed).toEqual({ code: 1001, reason: 'the service stops' });
  await vi.waitFor(() => expect(it.inside.running).toBe(0));
});

describe('back-pressure of a terminal', () => {
  function scripted(parts: Partial<OpenExec>): OpenExec {
    return {
      stdin: new PassThrough(),
      stdout: Readable.from([]),
      stderr: Readable.from([]),
      ended: Promise.resolve(0),
      resize: () => undefined,
      kill: () => undefined,
      ...parts,
    };
  }

  test('a client that does not read pauses the output of the command', async () => {
    await using it = await bed();
    let made = 0;
    const stdout = new Readable({
      read() {
        made += 65_536;
        this.push(made > 100_000_000 ? null : Buffer.alloc(65_536));
      },
    });
    it.inside.openExec = async () => scripted({ stdout });
    const caller = await Caller.open(it.url);
    caller.socket.pause();
    let before = -1;
    await vi.waitFor(
      () => {
        const isStill = made === before;
        before = made;
        expect(isStill).toBe(true);
      },
      { interval: 200, timeout: 30_000 },
    );
    expect(made).toBeLessThan(50_000_000);
    caller.socket.resume();
    expect(await caller.closed).toMatchObject({ code: 1000 });
    expect(Buffer.concat(caller.outputs(1)).length).toBeGreaterThan(99_000_000);
  });

  test('a command that does not read pauses the client, which can still disconnect', async () => {
    await using it = await bed();
    const killed = deferred();
    const stdin = new Writable({ write: () => undefined });
    const stdout = new PassThrough();
    it.inside.openExec = async (_request, signal) => {
      signal.addEventListener('abort', () => stdout.destroy());
      return scripted({ stdin, stdout, ended: new Promise(() => undefined), kill: () => killed.resolve() });
    };
    const caller = await Caller.open(it.url);
    for (let at = 0; at < 200; at++) caller.socket.send(Buffer.alloc(500_000));
    let before = -1;
    await vi.waitFor(
      () => {
        const now = caller.socket.bufferedAmount;
        const isStill = now === before;
        before = now;
        expect(isStill).toBe(true);
      },
      { interval: 200, timeout: 30_000 },
    );
    expect(before).toBeGreaterThan(50_000_000);
    caller.socket.terminate();
    await it.app.close();
    await killed.promise;
  });
});

describe('access to a terminal', () => {
  test('a request without an upgrade is answered 426', async () => {
    await using it = await bed();
    expect(await it.send({ method: 'GET', url: EXEC })).toMatchObject({
      status: 426,
      headers: { upgrade: 'websocket' },
      body: { code: 426 },
    });
  });

  test('a terminal of an unknown agent, or of an agent of another tenant, is answered 404', async () => {
    await using it = await bed();
    const body = { code: 404, message: `instance not found: ${AGENT.id}` };
    expect(await refusedHandshake(it.url, { headers: { tenantid: 'other' } })).toMatchObject({ status: 404, body });
  });

  test('a terminal is answered 429 when too many are open', async () => {
    await using it = await bed();
    it.inside.openExec = () => Promise.reject(resourceExhausted('32 commands are open in this sandbox'));
    expect(await refusedHandshake(it.url)).toMatchObject({ status: 429 });
  });

  test.each(['null', 'http://evil.example'])('a terminal request with the origin %s is 403', async origin => {
    await using it = await bed();
    expect(await refusedHandshake(it.url, { origin })).toMatchObject({ status: 403 });
    expect(it.inside.execs).toEqual([]);
  });

  test('a terminal needs the role developer and accepts a token in the query', async () => {
    const roles: Record<string, 'developer' | 'user' | 'viewer'> = { d: 'developer', u: 'user', v: 'viewer' };
    const identityOf = (token: string) => {
      const role = roles[token];
      if (role === undefined) throw permissionDenied('unknown');
      return { tenant: 'default', role };
    };
    await using it = await bed({ auth: { known: identityOf, verify: async token => identityOf(token) } });
    expect(await refusedHandshake(it.url)).toMatchObject({ status: 401 });
    for (const token of ['u', 'v'])
      expect(await refusedHandshake(`${it.url}?token=${token}`)).toMatchObject({ status: 403 });
    const caller = await Caller.open(`${it.url}${command('true')}&token=d`);
    expect(await caller.closed).toMatchObject({ code: 1000 });
  });

  test('a handshake that fails after the command was started ends the command', async () => {
    await using it = await bed();
    const url = it.url.replace('ws', 'http') + command('sleep', '1000');
    const headers = {
      Connection: 'Upgrade',
      Upgrade: 'websocket',
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': 'bad',
    };
    const [answer] = await once(http.get(url, { headers }), 'response');
    expect(answer.statusCode).toBe(400);
    answer.resume();
    await vi.waitFor(() => expect(it.inside.execs.length).toBe(1));
    await vi.waitFor(() => expect(it.inside.running).toBe(0));
  });
});
