import { PassThrough } from 'node:stream';
import { expect, test, vi } from 'vitest';
import { MemorySandbox } from '../../../test/fakes/memory-sandbox.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { cli, type RunOptions } from '../../../test/parts/cli.ts';

const AGENT = newInstance(SPEC);

interface Bed extends TestFrontend {
  readonly inside: MemorySandbox;
  agent(args: readonly string[], options?: RunOptions): ReturnType<typeof cli>;
}

async function bed(): Promise<Bed> {
  const frontend = testFrontend();
  const inside = new MemorySandbox();
  frontend.instances.put(AGENT);
  frontend.instances.inside = inside.access;
  const address = await frontend.listen();
  const agent = (args: readonly string[], options: RunOptions = {}) =>
    cli(['agent', ...args], { ...options, environment: { ROOKERY_ADDRESS: address, ...options.environment } });
  return Object.assign(frontend, { inside, agent });
}

test('exec --detach prints the pid and leaves the process running', async () => {
  await using it = await bed();
  const args = ['exec', AGENT.id, '-d', '--tag', 'work', '--user', 'root', '-w', '/tmp', '-e', 'A=1', 'sleep', '60'];
  expect(await it.agent(args)).toMatchObject({ code: 0, out: '100\n' });
  expect(it.inside.processes[0]).toMatchObject({
    ended: null,
    request: { argv: ['sleep', '60'], tag: 'work', user: 'root', workingDir: '/tmp', env: { A: '1' } },
  });
});

test('exec refuses --tag without --detach', async () => {
  await using it = await bed();
  expect(await it.agent(['exec', AGENT.id, '--tag', 'work', 'true'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('--tag and --user need --detach'),
  });
});

test('ps lists running processes', async () => {
  await using it = await bed();
  await it.agent(['exec', AGENT.id, '-d', '--tag', 'work', 'sleep', '60']);
  const { out } = await it.agent(['ps', AGENT.id]);
  expect(out).toMatch(/^PID +TAG +AGE +COMMAND\n100 +work +\S+ +sleep 60\n$/);
  const { out: json } = await it.agent(['ps', AGENT.id, '--json']);
  expect(JSON.parse(json)).toMatchObject({ processes: [{ pid: 100, tag: 'work' }] });
});

test('kill sends the named signal, by default SIGTERM', async () => {
  await using it = await bed();
  for (const signal of [[], ['-s', 'int'], ['-s', 'SIGKILL']]) {
    await it.agent(['exec', AGENT.id, '-d', 'sleep', '60']);
    const pid = String(it.inside.processes.at(-1)?.pid);
    expect(await it.agent(['kill', ...signal, AGENT.id, pid])).toMatchObject({ code: 0 });
  }
  expect(it.inside.processes.map(({ ended }) => ended?.signal)).toEqual(['SIGTERM', 'SIGINT', 'SIGKILL']);
});

test('attach prints both outputs and returns the exit code', async () => {
  await using it = await bed();
  await it.agent(['exec', AGENT.id, '-d', '--tag', 'work', 'x']);
  const [process] = it.inside.processes;
  const attached = it.agent(['attach', AGENT.id, 'work']);
  await vi.waitFor(() => expect(process?.listeners).toBe(1));
  process?.print('stdout', 'out');
  process?.print('stderr', 'err');
  process?.end({ code: 5 });
  expect(await attached).toMatchObject({ code: 5, out: 'out', err: 'err' });
});

test('attach -i sends stdin and its end', async () => {
  await using it = await bed();
  await it.agent(['exec', AGENT.id, '-d', '-i', 'cat']);
  const [process] = it.inside.processes;
  const stdin = new PassThrough();
  const attached = it.agent(['attach', '-i', AGENT.id, '100'], { stdin });
  await vi.waitFor(() => expect(process?.listeners).toBe(1));
  stdin.end('typed');
  await vi.waitFor(() => expect(process?.received).toEqual(['typed', '<closed>']));
  process?.end({ code: 0 });
  expect(await attached).toMatchObject({ code: 0 });
});

test('attach to an unknown process fails', async () => {
  await using it = await bed();
  expect(await it.agent(['attach', AGENT.id, '7'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('process not found'),
  });
});
