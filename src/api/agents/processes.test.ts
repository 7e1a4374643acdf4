import { expect, test, vi } from 'vitest';
import { MemorySandbox } from '../../../test/fakes/memory-sandbox.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { Caller, refusedHandshake } from '../../../test/http/web-socket.ts';

const AGENT = newInstance(SPEC);
const PROCESSES = `/api/agent/${AGENT.id}/processes`;

interface Bed extends TestFrontend {
  readonly inside: MemorySandbox;
  readonly address: string;
  post(path: string, body: unknown): Promise<{ status: number; body: unknown }>;
}

async function bed(): Promise<Bed> {
  const frontend = testFrontend();
  const inside = new MemorySandbox();
  frontend.instances.put(AGENT);
  frontend.instances.inside = inside.access;
  const address = (await frontend.listen()).replace('http', 'ws');
  const post = (path: string, body: unknown) =>
    frontend.send({ method: 'POST', url: PROCESSES + path, payload: JSON.stringify(body) });
  return Object.assign(frontend, { inside, address, post });
}

test('a start passes every field on and answers the pid', async () => {
  await using it = await bed();
  const body = {
    command: ['sleep', '60'],
    working_dir: '/tmp',
    env: { A: '1' },
    user: 'root',
    tag: 'work',
    stdin: true,
    tty: true,
    cols: 100,
    rows: 30,
    timeout: 1.5,
  };
  expect(await it.post('', body)).toMatchObject({ status: 200, body: { code: 200, pid: 100 } });
  expect(it.inside.processes[0]?.request).toEqual({
    argv: ['sleep', '60'],
    workingDir: '/tmp',
    env: { A: '1' },
    user: 'root',
    tag: 'work',
    stdin: true,
    terminal: { columns: 100, rows: 30 },
    timeLimitMs: 1500,
  });
});

test('a started process has no listener and continues', async () => {
  await using it = await bed();
  await it.post('', { command: 'sleep 60' });
  expect(it.inside.processes[0]).toMatchObject({ listeners: 0, ended: null });
});

test.each([
  [{}, 'command is required'],
  [{ command: '' }, 'command'],
  [{ command: 'x', tag: '' }, 'tag'],
  [{ command: 'x', cols: 0 }, 'cols'],
  [{ command: 'x', working_dir: '/missing' }, "cwd '/missing' does not exist"],
])('the start %j answers 400', async (body, message) => {
  await using it = await bed();
  expect(await it.post('', body)).toMatchObject({ status: 400, body: { message: expect.stringContaining(message) } });
});

test('the list has running processes without their variables', async () => {
  await using it = await bed();
  await it.post('', { command: ['sleep', '60'], tag: 'work', env: { SECRET: 'x' } });
  await it.post('', { command: 'true' });
  it.inside.processes[1]?.end({ code: 0 });
  expect(await it.send({ method: 'GET', url: PROCESSES })).toMatchObject({
    status: 200,
    body: {
      code: 200,
      processes: [
        {
          pid: 100,
          command: ['sleep', '60'],
          working_dir: '',
          user: '',
          tag: 'work',
          tty: false,
          started_at: '1970-01-01T00:00:00.000Z',
        },
      ],
    },
  });
});

test.each(['100', 'work'])('the process %s is signalled', async process => {
  await using it = await bed();
  await it.post('', { command: 'sleep 60', tag: 'work' });
  expect(await it.post(`/${process}/signal`, { signal: 'SIGINT' })).toMatchObject({ status: 200, body: { code: 200 } });
  expect(it.inside.processes[0]?.ended).toMatchObject({ signal: 'SIGINT' });
});

test('a signal to an unknown process answers 404', async () => {
  await using it = await bed();
  expect(await it.post('/7/signal', {})).toMatchObject({ status: 404 });
});

test('an attached client gets marked output and the end', async () => {
  await using it = await bed();
  await it.post('', { command: 'x' });
  const [process] = it.inside.processes;
  const caller = await Caller.open(`${it.address}${PROCESSES}/100/attach`);
  await vi.waitFor(() => expect(process?.listeners).toBe(1));
  process?.print('stdout', 'out');
  process?.print('stderr', 'err');
  process?.end({ code: 3 });
  expect(await caller.closed).toMatchObject({ code: 1000 });
  expect([caller.output(1), caller.output(2)]).toEqual(['out', 'err']);
  expect(caller.texts).toEqual(['{"type":"exit","returncode":3,"signal":null,"timed_out":false}']);
});

test('a signal as the end has a return code above 128', async () => {
  await using it = await bed();
  await it.post('', { command: 'x', tag: 'work' });
  const caller = await Caller.open(`${it.address}${PROCESSES}/work/attach`);
  it.inside.processes[0]?.end({ signal: 'SIGKILL', timedOut: true });
  await caller.closed;
  expect(caller.texts).toEqual(['{"type":"exit","returncode":137,"signal":"SIGKILL","timed_out":true}']);
});

test('an attached client sends input, sizes and the end of input', async () => {
  await using it = await bed();
  await it.post('', { command: 'x', tty: true });
  await it.post('', { command: 'x', stdin: true });
  const [terminal, piped] = it.inside.processes;
  const first = await Caller.open(`${it.address}${PROCESSES}/100/attach`);
  first.socket.send(Buffer.from('typed'));
  first.socket.send('{"type":"resize","cols":90,"rows":20}');
  await vi.waitFor(() => expect(terminal?.received).toEqual(['typed', '90x20']));
  const second = await Caller.open(`${it.address}${PROCESSES}/101/attach`);
  second.socket.send(Buffer.from('piped'));
  second.socket.send('{"type":"stdin-end"}');
  await vi.waitFor(() => expect(piped?.received).toEqual(['piped', '<closed>']));
  first.socket.send('{"type":"unknown"}');
  expect(await first.closed).toMatchObject({ code: 1008 });
  second.socket.terminate();
});

test('a client that leaves does not end the process', async () => {
  await using it = await bed();
  await it.post('', { command: 'x' });
  const [process] = it.inside.processes;
  const caller = await Caller.open(`${it.address}${PROCESSES}/100/attach`);
  await vi.waitFor(() => expect(process?.listeners).toBe(1));
  caller.socket.terminate();
  await vi.waitFor(() => expect(process?.listeners).toBe(0));
  expect(process?.ended).toBeNull();
});

test('an unknown process refuses the handshake with 404', async () => {
  await using it = await bed();
  expect(await refusedHandshake(`${it.address}${PROCESSES}/7/attach`)).toMatchObject({ status: 404 });
});

test('a lost sandbox closes the connection with its reason', async () => {
  await using it = await bed();
  await it.post('', { command: 'x' });
  const [process] = it.inside.processes;
  const caller = await Caller.open(`${it.address}${PROCESSES}/100/attach`);
  await vi.waitFor(() => expect(process?.listeners).toBe(1));
  process?.breakOff();
  expect(await caller.closed).toEqual({ code: 1011, reason: 'the sandbox ended' });
});
