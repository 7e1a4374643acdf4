import type { ServerResponse } from 'node:http';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';
import { META_CODES } from '../../core/codes.ts';

/** Starts a service whose events the test sends, and whose answers the test changes. */
async function service(answers: Record<string, () => unknown>) {
  const readers = new Set<ServerResponse>();
  const stub = await StubService.start(({ url }, response) => {
    if (url.startsWith('/api/events')) {
      response
        .writeHead(200, { 'content-type': 'text/event-stream' })
        .write('event: hello\ndata: {"type":"hello"}\n\n');
      readers.add(response);
      return;
    }
    const path = Object.keys(answers).find(each => url.startsWith(each));
    const value = path === undefined ? undefined : answers[path]?.();
    if (value === undefined) json(response, 404, { code: 404, message: 'not found' });
    else if (typeof value === 'string') response.writeHead(200).end(value);
    else json(response, 200, value);
  });
  return {
    stub,
    connection: ['--address', stub.address, '--meta-address', stub.address],
    tell: () => readers.forEach(reader => void reader.write('event: ready\ndata: {"type":"ready"}\n\n')),
    isFollowed: () => readers.size > 0,
    [Symbol.asyncDispose]: () => stub[Symbol.asyncDispose](),
  };
}

const ID = '11111111-2222-4333-8444-555555555555';
const agent = (status: string, more = {}) => ({ instance_id: ID, namespace: 'default', name: 'a', status, ...more });

describe('rookery wait', () => {
  test('wait reads the state again at an event, and ends when the state is reached', async () => {
    let status = 'CREATING';
    await using it = await service({
      '/api/agent?': () => ({ instances: [agent(status)] }),
      '/api/agent/': () => ({ instance: agent(status) }),
    });
    const waiting = cli(['wait', 'agent', 'a', ...it.connection]);
    await vi.waitFor(() => expect(it.stub.seen.some(({ url }) => url.startsWith('/api/agent/'))).toBe(true));
    status = 'RUNNING';
    it.tell();
    expect(await waiting).toEqual({ code: 0, out: 'running\n', err: '' });
  });

  test('wait continues for a missing agent until --timeout, and counts a missing agent as deleted', async () => {
    await using it = await service({ '/api/agent?': () => ({ instances: [] }) });
    const args = ['wait', 'agent', 'a', ...it.connection];
    expect(await cli([...args, '--for', 'deleted'])).toMatchObject({ code: 0, out: 'deleted\n' });
    const late = await cli([...args, '--timeout', '10ms']);
    expect(late).toEqual({ code: 124, out: '', err: 'Not running after 10ms: there is no agent a.\n' });
  });

  test("wait ends with 1 when the state can no longer be reached, unless the agent's policy restarts it", async () => {
    let restart = {};
    const failed = () => ({ ...agent('FAILED', { status_reason: 'exit code 3' }), ...restart });
    await using it = await service({
      '/api/agent/': () => ({ instance: failed() }),
      '/api/jobs/j': () => ({ status: 'FAILED', message: 'exit code 1' }),
    });
    const gone = await cli(['wait', 'agent', ID, ...it.connection]);
    expect(gone.code).toBe(1);
    expect(gone.err).toBe(`It cannot become running by itself any more: agent ${ID} is failed: exit code 3.\n`);
    restart = { restart_at: '2030-01-01T00:00:00Z' };
    expect((await cli(['wait', 'agent', ID, '--timeout', '10ms', ...it.connection])).code).toBe(124);
    expect((await cli(['wait', 'job', 'j', ...it.connection])).code).toBe(1);
    expect(await cli(['wait', 'job', 'j', '--for', 'over', ...it.connection])).toMatchObject({ out: 'failed\n' });
    expect((await cli(['wait', 'job', 'nosuch', ...it.connection])).code).toBe(1);
  });

  test('wait ends when a function is deleted, idle or ready', async () => {
    let instances: object[] = [];
    await using it = await service({
      '/serverless/v1/functions/0%40default%40f?': () => ({ code: 0, function: { functionVersionUrn: 'sn:u' } }),
      '/serverless/v1/functions/0%40default%40none?': () => ({ code: META_CODES.notFound.code, message: 'no' }),
      '/serverless/v1/functions/sn%3Au/instances': () => ({ instances }),
    });
    const wait = async (...args: string[]) => (await cli(['wait', 'function', ...args, ...it.connection])).out;
    expect(await wait('none', '--for', 'deleted')).toBe('deleted\n');
    expect(await wait('f', '--for', 'idle')).toBe('idle\n');
    instances = [{ status: 'ready' }];
    expect(await wait('f')).toBe('ready\n');
  });

  test.each([
    ['agent', 'succeeded'],
    ['job', 'ready'],
  ])('wait refuses %s --for %s with exit code 2', async (kind, state) => {
    const ran = await cli(['wait', kind, 'x', '--for', state]);
    expect(ran).toMatchObject({ code: 2, err: expect.stringContaining(`--for must be`) });
  });
});

test('list --watch prints the list again when it has changed, until the command is interrupted', async () => {
  let agents = [agent('CREATING')];
  await using it = await service({ '/api/agent?': () => ({ instances: agents, next_cursor: null }) });
  const leave = new AbortController();
  const out: string[] = [];
  const told = vi.fn((text: string) => void out.push(text));
  const watching = cli(['agent', 'list', '--watch', ...it.connection], { signal: leave.signal, onOut: told });
  await vi.waitFor(() => expect(out.join('')).toContain('CREATING'));
  it.tell();
  agents = [agent('RUNNING')];
  it.tell();
  await vi.waitFor(() => expect(out.join('')).toContain('RUNNING'));
  leave.abort();
  expect((await watching).out.match(/^ID/gm)).toHaveLength(2);
});

test('list --watch ends with exit code 69 when the connection breaks', async () => {
  await using it = await service({ '/api/jobs': () => [] });
  const watching = cli(['job', 'list', '--watch', ...it.connection]);
  await vi.waitFor(() => expect(it.isFollowed()).toBe(true));
  await it[Symbol.asyncDispose]();
  expect((await watching).code).toBe(69);
});

describe('logs of several agents', () => {
  const answers = {
    '/api/agent?namespace=default&name=one': () => ({ instances: [{ instance_id: '1' }] }),
    '/api/agent?namespace=default&name=other': () => ({ instances: [{ instance_id: '2' }] }),
    '/api/agent?': () => ({ instances: [] }),
    '/api/agent/1/logs': () => 'a\nb\n',
    '/api/agent/2/logs': () => 'c',
  };

  test("logs of several agents prefix each line with the agent's name, in colour on a terminal only", async () => {
    await using it = await service(answers);
    for (const noun of [['logs'], ['agent', 'logs']]) {
      const ran = await cli([...noun, 'one', 'other', ...it.connection]);
      expect(ran).toEqual({ code: 0, out: 'one   | a\none   | b\nother | c\n', err: '' });
    }
    const followed = await cli(['logs', '-f', 'one', 'other', ...it.connection], { isTerminal: true });
    expect(it.stub.last.url).toContain('follow=true');
    expect(followed.out).toContain('\x1b[36mone   | \x1b[39ma\n');
    expect(followed.out).toContain('\x1b[35mother | \x1b[39mc\n');
    expect((await cli(['logs', 'one', ...it.connection])).out).toBe('a\nb\n');
  });

  test('logs of several agents print nothing when one of the agents does not exist', async () => {
    await using it = await service(answers);
    expect(await cli(['logs', 'one', 'nosuch', ...it.connection])).toMatchObject({ code: 1, out: '' });
  });
});

test('top prints the usage of agents and functions once when stdout is not a terminal', async () => {
  let cpu = 0;
  await using it = await service({
    '/api/agent?': () => ({
      instances: [
        agent('RUNNING', { resources: { cpu: 500, memory: 128 } }),
        agent('FAILED', { instance_id: 'x', name: 'b' }),
      ],
    }),
    [`/api/agent/${ID}/stats`]: () => {
      cpu += 400_000;
      return { cpu_micros: cpu, memory_bytes: 64 * 1024 * 1024, processes: 1 };
    },
    '/api/metrics/history?range=1h&': () => ({
      series: { calls: [9, 1, 2, null, 3, 4, 5], errors: [0], p50_ms: [1.25] },
    }),
    '/api/metrics/history': () => ({ series: { cpu_millis: [1500], memory_mb: [2048], service_cpu_millis: [20] } }),
    '/serverless/v1/functions?': () => ({
      code: 0,
      result: {
        total: 3,
        functions: [
          { name: '0@default@f', functionVersionUrn: 'sn:u', kind: 'faas', cpu: 1000, memory: 256 },
          { name: '0@default@g', functionVersionUrn: 'sn:v', kind: 'agent' },
          { name: '0@default@h', functionVersionUrn: 'sn:w', kind: 'yrlib' },
        ],
      },
    }),
    '/serverless/v1/functions/sn%3Au/instances': () => ({ instances: [{ status: 'ready' }] }),
    '/serverless/v1/functions/sn%3Av/instances': () => ({ instances: [] }),
    '/serverless/v1/functions/sn%3Av/stats': () => ({ instances: [] }),
    '/serverless/v1/functions/sn%3Au/stats': () => ({
      instances: ['i', 'j'].map(id => ({ instance_id: id, cpu_micros: cpu, memory_bytes: 1024 * 1024, processes: 2 })),
    }),
  });
  const { code, out } = await cli(['top', ...it.connection]);
  expect(code).toBe(0);
  expect(out).toMatch(/^machine {2}1500 millicores, 2048 MB$/m);
  expect(out).toMatch(/^agent +default\/a +RUNNING +\d\d+\/500 +64\/128 +15 +0 +1\.3$/m);
  expect(out).toMatch(/^agent +default\/b +FAILED +- +- /m);
  expect(out).toMatch(/^function +0@default@f +1\/1 ready +\d+\/1000 +2\.0\/256 +15 +0 +1\.3$/m);
  // A function of kind agent can be called directly too, so it is listed.
  expect(out).toMatch(/^function +0@default@g +0\/0 ready +0 +0 +15 +0 +1\.3$/m);
  expect(out).not.toContain('0@default@h');
});

test('top sorts, explains its keys and quits by keys on a terminal', async () => {
  await using it = await service({
    '/api/agent?': () => ({ instances: [agent('RUNNING', { name: 'z' }), agent('RUNNING', { name: 'y' })] }),
    [`/api/agent/${ID}/stats`]: () => ({ cpu_micros: 0, memory_bytes: 0, processes: 1 }),
    '/api/metrics/history': () => ({ series: {} }),
    '/serverless/v1/functions?': () => ({ code: 0, result: { total: 0, functions: [] } }),
  });
  let out = '';
  const raw: boolean[] = [];
  async function* keys() {
    await vi.waitFor(() => expect(out).toContain('q: quit   h: keys'));
    yield 'hn';
    await vi.waitFor(() => expect(out).toMatch(/default\/y[^Z]*default\/z[^Z]*sort by c: CPU/));
    yield 'q';
  }
  const terminal = {
    size: () => ({ columns: 100, rows: 30 }),
    setRaw: (isRaw: boolean) => void raw.push(isRaw),
    onResize: () => () => undefined,
  };
  const onOut = (text: string) => {
    out += text;
  };
  const args = ['top', '--interval', '1h', ...it.connection];
  const ran = await cli(args, { stdin: keys(), terminal, isTerminal: true, columns: 120, onOut });
  expect(ran).toMatchObject({ code: 0, err: '' });
  expect(raw).toEqual([true, false]);
});

describe('rookery events', () => {
  test('events ends with exit code 69 when the service sends nothing for 40 s', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    await using it = await service({});
    let isOver = false;
    const following = cli(['events', ...it.connection]).finally(() => {
      isOver = true;
    });
    await vi.waitFor(async () => {
      await vi.advanceTimersByTimeAsync(40_000);
      expect(isOver).toBe(true);
    });
    expect(await following).toMatchObject({
      code: 69,
      err: 'The connection to the service broke (nothing came for 40 s).\n',
    });
  });

  test('events --no-follow asks for all stored events of an agent by its name, prints them and ends with 0', async () => {
    const failed = {
      type: 'failed',
      at: '2026-01-31T12:00:00.000Z',
      owner: 'agent',
      instance_id: ID,
      reason: 'exit 7',
    };
    await using stub = await StubService.start(({ url }, response) => {
      if (!url.startsWith('/api/events')) return json(response, 200, { instances: [agent('FAILED')] });
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(`event: hello\ndata: {"type":"hello"}\n\nevent: failed\ndata: ${JSON.stringify(failed)}\n\n`);
    });
    const ran = await cli(['events', '--agent', 'a', '--no-follow', '--json', '--address', stub.address]);
    expect(ran).toMatchObject({ code: 0, err: '' });
    expect(ran.out).toContain('"reason":"exit 7"');
    expect(stub.seen.at(-1)?.url).toBe(`/api/events?recent=4096&follow=false&agent=${ID}`);
  });

  test.each([
    [['--recent', '5000'], '--recent must be a whole number from 0 to 4096, not "5000".'],
    [['--agent', 'a', '--job', 'b'], 'Give one of --agent, --function and --job.'],
    [['--after', 'x', '--no-follow'], 'Give --after alone, without --recent or --no-follow.'],
  ])('events with %j is a wrong use', async (args, message) => {
    const ran = await cli(['events', ...args]);
    expect(ran.code).toBe(2);
    expect(ran.err).toContain(message);
  });
});
