import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Answer, Bed } from './agents.ts';

const CODE = `
import asyncio, os, signal, threading, time
running = 0
peak = 0
lock = threading.Lock()
started = time.time()

def who(event, context):
    return {"pid": os.getpid(), "session": context.session_id, "ctx": context.env("ROOKERY_SESSION_CTX_ID"),
            "mem": context.memory_mb, "greeting": context.env("GREETING")}

def busy(event, context):
    global running, peak
    with lock:
        running += 1
        peak = max(peak, running)
    time.sleep(event.get("seconds", 0.05))
    with lock:
        running -= 1
    return peak

def fail(event, context):
    raise KeyError("nope")

def sleep(event, context):
    time.sleep(event)

def heedless(event, context):
    while event:
        try:
            time.sleep(event)
        except BaseException:
            pass
    return os.getpid()

def die(event, context):
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)

def stream(event, context):
    out = context.get_stream()
    for i in range(event["count"]):
        out.write("event %d" % i)
    return {"done": event["count"]}

def lines(event, context):
    context.get_stream().write("one\\ntwo")

def generate(event, context):
    yield "text"
    yield None
    yield {"n": 1}

async def agenerate(event, context):
    for i in range(3):
        await asyncio.sleep(0)
        yield i

def stream_then_fail(event, context):
    context.get_stream().write("first")
    raise RuntimeError("late")

def flood(event, context):
    out = context.get_stream()
    for _ in range(10 ** 6):
        out.write("x" * 65536)

def write(event, context):
    with open("/opt/function/code/made", "w") as made:
        made.write("x")
    return sorted(os.listdir("/opt/function/code"))
`;

const URN = (name: string, version = '$latest') => `sn:cn:yrk:default:function:0@e2e@${name}:${version}`;

describe('functions', () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ 'code.py': '', 'fn.py': CODE });
  });
  afterAll(() => bed?.[Symbol.asyncDispose]());

  const register = async (name: string, handler: string, more: object = {}): Promise<Record<string, unknown>> => {
    const { status, body } = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        name: `0@e2e@${name}`,
        kind: 'faas',
        runtime: bed.runtime,
        cpu: 500,
        memory: 128,
        handler: `fn.${handler}`,
        storageType: 'local',
        codePath: bed.codeDir,
        ...more,
      },
      { meta: true },
    );
    if (status !== 200 || body.code !== 0) throw new Error(JSON.stringify(body));
    return body.function as Record<string, unknown>;
  };
  const call = (urn: string, event: unknown = {}, headers: Record<string, string> = {}): Promise<Answer> =>
    bed.ask('POST', `/serverless/v1/functions/${urn}/invocations`, event, { headers });
  const raw = (urn: string, event: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    fetch(`${bed.server.frontendUrl}/serverless/v1/functions/${urn}/invocations`, {
      method: 'POST',
      body: JSON.stringify(event),
      headers: { 'content-type': 'application/json', ...headers },
      ...(signal ? { signal } : {}),
    });
  const instances = async (urn: string) =>
    (await bed.ask('GET', `/serverless/v1/functions/${urn}/instances`)).body.instances as { instance_id: string }[];

  it('a successful call answers 200 with the value as JSON and the headers of the call', async () => {
    await register('who', 'who', { environment: { GREETING: 'hi' } });
    const response = await raw(URN('who'), {});
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toContain('application/json');
    expect(response.headers.get('x-inner-code')).toBe('0');
    expect(response.headers.get('x-trace-id')).toBeTruthy();
    expect(response.headers.get('x-instance-id')).toMatch(/^[0-9a-f-]{36}$/);
    expect(response.headers.get('x-billing-duration')).toMatch(/^\d+$/);
    expect(response.headers.get('server-timing')).toMatch(/^queue;dur=.*place;dur=.*start;dur=.*load;dur=.*run;dur=/);
    expect(await response.json()).toMatchObject({ greeting: 'hi', mem: 128 });
  });

  it('the stats of a function list the usage of its instances', async () => {
    await register('used', 'who');
    expect((await call(URN('used'))).status).toBe(200);
    const [{ instance_id } = { instance_id: '' }] = await instances(URN('used'));
    const { status, body } = await bed.ask('GET', `/serverless/v1/functions/${URN('used')}/stats`);
    expect(status).toBe(200);
    const use = { memory_bytes: expect.any(Number), cpu_micros: expect.any(Number), processes: expect.any(Number) };
    expect(body).toEqual({ instances: [{ instance_id, ...use }] });
    expect((body.instances as { memory_bytes: number }[])[0]?.memory_bytes).toBeGreaterThan(0);
    expect(await bed.ask('GET', `/serverless/v1/functions/${URN('nosuch')}/stats`)).toMatchObject({
      status: 404,
      body: { code: 150424 },
    });
  });

  it('the short URL reaches the same function', async () => {
    await register('short', 'who');
    for (const end of ['', '/', ':$latest/', ':latest']) {
      expect((await bed.ask('POST', `/invocations/default/e2e/short${end}`, {})).status).toBe(200);
    }
  });

  it.each([
    ['malformed URN', 'nonsense', 400, 200400],
    ['URN without a version', 'sn:cn:yrk:default:function:0@e2e@who', 400, 200400],
    ['unknown function', URN('nosuch'), 404, 150424],
    ['another business', 'sn:cn:other:default:function:0@e2e@who:$latest', 404, 150424],
  ])('a call is rejected for: %s (%s)', async (_title, urn, status, code) => {
    const answer = await call(urn as string);
    expect(answer).toMatchObject({ status, body: { code, message: expect.any(String), trace_id: expect.any(String) } });
  });

  it.each([
    ['bad session header', { 'X-Instance-Session': '{' }, 400, 4037],
    [
      'session concurrency above concurrentNum',
      { 'X-Instance-Session': '{"sessionID":"s","concurrency":1000}' },
      400,
      4037,
    ],
    ['bad resource header', { 'X-Instance-Cpu': 'x' }, 400, 200400],
    ['unknown label', { 'X-Instance-Label': 'nosuch' }, 400, 150444],
    ['an instance larger than the machine', { 'X-Instance-Memory': '999999999' }, 429, 150510],
  ])('a call is rejected with its own code for: %s', async (_title, headers, status, code) => {
    await register(`h${code}${status}`.toLowerCase(), 'who').catch(() => undefined);
    const answer = await call(URN(`h${code}${status}`), {}, headers as unknown as Record<string, string>);
    expect(answer).toMatchObject({ status, body: { code } });
  });

  it('a call with a body that is not JSON answers 400 (200400), and a too large one 413 (4140)', async () => {
    await register('sizes', 'who');
    expect(await call(URN('sizes'), 'x{')).toMatchObject({ status: 400, body: { code: 200400 } });
    expect(await call(URN('sizes'), JSON.stringify('x'.repeat(6 * 1024 * 1024 + 1)))).toMatchObject({
      status: 413,
      body: { code: 4140 },
    });
  });

  it('errors of user code answer 500 with 4002, 4001 or 4201', async () => {
    await register('fails', 'fail');
    expect(await call(URN('fails'))).toMatchObject({ status: 500, body: { code: 4002 } });
    await register('nomodule', 'x', { handler: 'nosuch.handler' });
    expect(await call(URN('nomodule'))).toMatchObject({ status: 500, body: { code: 4001 } });
    await register('noinit', 'who', { extendedHandler: { initializer: 'fn.nosuch' } });
    expect(await call(URN('noinit'))).toMatchObject({ status: 500, body: { code: 4201 } });
    await register('nofolder', 'who', { codePath: '/nonexistent/code' });
    expect(await call(URN('nofolder'))).toMatchObject({ status: 500, body: { code: 4001 } });
  });

  it('a handler timeout answers 504 (4010), and the instance is replaced', async () => {
    await register('slow', 'sleep', { timeout: 1 });
    const first = (await raw(URN('slow'), 0)).headers.get('x-instance-id');
    expect(await call(URN('slow'), 30)).toMatchObject({ status: 504, body: { code: 4010 } });
    expect((await raw(URN('slow'), 0)).headers.get('x-instance-id')).not.toBe(first);
  });

  it('a call whose instance dies answers 500 (150427)', async () => {
    await register('dies', 'die');
    expect(await call(URN('dies'))).toMatchObject({ status: 500, body: { code: 150427 } });
  });

  it('a function of a kind without calls answers 400 (200400) with the reason', async () => {
    await register('lib', 'who', { kind: 'yrlib' });
    const answer = await call(URN('lib'));
    expect(answer).toMatchObject({ status: 400, body: { code: 200400, message: expect.stringContaining('yrlib') } });
  });

  it('60 parallel first calls with concurrentNum 10 start 6 instances', async () => {
    await register('burst', 'busy', { concurrentNum: 10, cpu: 100 });
    const answers = await Promise.all(Array.from({ length: 60 }, () => call(URN('burst'), { seconds: 0.5 })));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    expect(Math.max(...answers.map(({ body }) => Number(body)))).toBeLessThanOrEqual(10);
    expect((await instances(URN('burst'))).length).toBe(6);
  });

  it('maxInstance is never exceeded, and waiting calls are served in order', async () => {
    await register('limited', 'busy', { concurrentNum: 1, maxInstance: 2 });
    const answers = await Promise.all(Array.from({ length: 12 }, () => call(URN('limited'), { seconds: 0.02 })));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    expect((await instances(URN('limited'))).length).toBeLessThanOrEqual(2);
  });

  it('a call to a full queue answers 429 (150429) with Retry-After at once', async () => {
    await register('full', 'busy', { concurrentNum: 1, maxInstance: 1, autoScaleConfig: { burstScaleNum: 2 } });
    await call(URN('full'), { seconds: 0 });
    const answers = await Promise.all(Array.from({ length: 10 }, () => raw(URN('full'), { seconds: 0.3 })));
    const refused = answers.filter(({ status }) => status === 429);
    expect(refused.length).toBe(7);
    for (const answer of refused) {
      expect(answer.headers.get('retry-after')).toBeTruthy();
      expect(await answer.json()).toMatchObject({ code: 150429 });
    }
  });

  it('minInstance starts instances at registration, and a new server adopts them', async () => {
    await register('warm', 'who', { minInstance: 2 });
    await expect.poll(async () => (await instances(URN('warm'))).length).toBe(2);
    const before = (await instances(URN('warm'))).map(({ instance_id }) => instance_id).sort();
    await bed.killAndRestart();
    await expect.poll(async () => (await instances(URN('warm'))).length).toBe(2);
    // The new server adopted the instances.
    expect((await instances(URN('warm'))).map(({ instance_id }) => instance_id).sort()).toEqual(before);
  });

  it('idle instances end after scaleDownTime', async () => {
    await register('idle', 'who', { autoScaleConfig: { scaleDownTime: 200 } });
    await call(URN('idle'));
    await expect.poll(async () => (await instances(URN('idle'))).length).toBe(0);
  });

  it('all calls in a session reach one instance, and a session can be deleted and interrupted', async () => {
    await register('sticky', 'who', { concurrentNum: 1 });
    const headers = { 'X-Instance-Session': '{"sessionID":"s1","sessionTTL":60,"concurrency":1}' };
    const pids = new Set<unknown>();
    for (let n = 0; n < 5; n++) pids.add(((await call(URN('sticky'), {}, headers)).body as { pid: number }).pid);
    expect(pids.size).toBe(1);
    expect((await bed.ask('DELETE', `/serverless/v1/functions/${URN('sticky')}/sessions/s1`)).status).toBe(200);
    expect(await bed.ask('DELETE', `/serverless/v1/functions/${URN('sticky')}/sessions/s1`)).toMatchObject({
      status: 404,
      body: { code: 200404 },
    });
    await register('held', 'sleep', { concurrentNum: 1 });
    const held = call(URN('held'), 60, { 'X-Instance-Session': 's2' });
    const path = `/serverless/v1/functions/${URN('held')}/sessions/s2/interrupt`;
    await expect.poll(async () => (await bed.ask('POST', path)).status).toBe(200);
    await expect.poll(async () => (await bed.ask('POST', path)).body.message).toBeTruthy();
    expect(await held).toMatchObject({ status: 500, body: { code: 4002 } });
  });

  it('a call whose handler ignores an interrupt releases its slot when the client disconnects', async () => {
    await register('heedless', 'heedless', { concurrentNum: 1, maxInstance: 1 });
    const leaving = new AbortController();
    const left = raw(URN('heedless'), 60, { 'X-Instance-Session': 's' }, leaving.signal);
    const path = `/serverless/v1/functions/${URN('heedless')}/sessions/s/interrupt`;
    await expect.poll(async () => (await bed.ask('POST', path)).status).toBe(200);
    leaving.abort();
    await expect(left).rejects.toThrow();
    expect(await call(URN('heedless'))).toMatchObject({ status: 200 });
  });

  it('a session context is never shared, and the code sees its own', async () => {
    await register('contexts', 'who', { enableSessionCtx: true });
    const of = async (ctx: string) =>
      (await call(URN('contexts'), {}, { 'X-Session-Context': JSON.stringify({ sessionCtx: ctx }) })).body as {
        pid: number;
        ctx: string;
      };
    const [a, b] = [await of('a'), await of('b')];
    expect([a.ctx, b.ctx]).toEqual(['a', 'b']);
    expect((await instances(URN('contexts'))).length).toBe(2);
  });

  it('reserved instances of a label run as configured and follow updates', async () => {
    await register('labelled', 'who');
    const reserve = (min: number) =>
      bed.ask(
        'POST',
        '/serverless/v1/functions/reserve-instance',
        {
          funcName: '0@e2e@labelled',
          version: '$latest',
          instanceLabel: 'gold',
          instanceConfigInfos: [{ minInstance: min, maxInstance: 3 }],
        },
        { meta: true },
      );
    expect((await reserve(2)).body.code).toBe(0);
    await expect.poll(async () => (await instances(URN('labelled'))).length).toBe(2);
    expect((await call(URN('labelled'), {}, { 'X-Instance-Label': 'gold' })).status).toBe(200);
    expect((await instances(URN('labelled'))).length).toBe(2);
    expect((await reserve(3)).body.code).toBe(0);
    await expect.poll(async () => (await instances(URN('labelled'))).length).toBe(3);
  });

  it('an SSE answer has an event for each write, then the value, then [DONE]', async () => {
    await register('stream', 'stream');
    const response = await raw(URN('stream'), { count: 3 }, { accept: 'text/event-stream' });
    expect(response.headers.get('content-type')).toContain('text/event-stream');
    expect(await response.text()).toBe(
      'data: event 0\n\ndata: event 1\n\ndata: event 2\n\ndata: {"done": 3}\n\ndata: [DONE]\n\n'.replace(
        '{"done": 3}',
        '{"done":3}',
      ),
    );
    await register('lines', 'lines');
    expect(await (await raw(URN('lines'), {}, { accept: 'text/event-stream' })).text()).toBe(
      'data: one\ndata: two\n\ndata: [DONE]\n\n',
    );
  });

  it('a generator streams with SSE and returns an array without', async () => {
    await register('gen', 'generate');
    expect((await call(URN('gen'))).body).toEqual(['text', null, { n: 1 }]);
    expect(await (await raw(URN('gen'), {}, { accept: 'text/event-stream' })).text()).toBe(
      'data: text\n\ndata: {"n":1}\n\ndata: [DONE]\n\n',
    );
    await register('agen', 'agenerate');
    expect((await call(URN('agen'))).body).toEqual([0, 1, 2]);
  });

  it('an SSE failure is a normal error before the first event, and an error event after it', async () => {
    await register('sfail', 'fail');
    const early = await raw(URN('sfail'), {}, { accept: 'text/event-stream' });
    expect({ status: early.status, body: await early.json() }).toMatchObject({ status: 500, body: { code: 4002 } });
    await register('slate', 'stream_then_fail');
    const late = await (await raw(URN('slate'), {}, { accept: 'text/event-stream' })).text();
    expect(late).toMatch(/^data: first\n\nevent: error\ndata: \{"code":4002,/);
    expect(await call(URN('slate'))).toMatchObject({ status: 500 });
  });

  it('an SSE client that disconnects cancels the handler', async () => {
    await register('flood', 'flood', { concurrentNum: 1, maxInstance: 1 });
    const leaving = new AbortController();
    const response = await raw(URN('flood'), {}, { accept: 'text/event-stream' }, leaving.signal);
    const reader = response.body?.getReader();
    await reader?.read();
    leaving.abort();
    // The only slot is free again only when the handler has ended.
    const again = new AbortController();
    const next = await raw(URN('flood'), {}, { accept: 'text/event-stream' }, again.signal);
    expect(next.status).toBe(200);
    again.abort();
  });

  it('an asynchronous call answers 202, and its result survives kill -9', async () => {
    await register('later', 'busy');
    const submit = await call(URN('later'), { seconds: 0.01 }, { 'X-Invoke-Type': 'async' });
    expect(submit.status).toBe(202);
    const result = (id: unknown) => bed.ask('GET', `/serverless/v1/functions/async-results/${id}`);
    const id = submit.body.requestId;
    await expect.poll(async () => (await result(id)).body.status).toBe('completed');
    expect((await result(id)).body).toMatchObject({ requestId: id, result: 1, createdAt: expect.any(String) });
    expect(await result('nosuch')).toMatchObject({ status: 404, body: { code: 200404 } });
    expect((await call(URN('nosuch'), {}, { 'X-Invoke-Type': 'async' })).status).toBe(404);
    await register('queue', 'sleep', { concurrentNum: 1, maxInstance: 1 });
    const first = (await call(URN('queue'), 1, { 'X-Invoke-Type': 'async' })).body.requestId;
    const second = (await call(URN('queue'), 0, { 'X-Invoke-Type': 'async' })).body.requestId;
    await expect.poll(async () => (await result(first)).body.status).toBe('processing');
    await bed.killAndRestart();
    expect((await result(id)).body.status).toBe('completed');
    expect((await result(first)).body).toMatchObject({
      status: 'failed',
      error: { message: expect.stringContaining('not known') },
    });
    await expect.poll(async () => (await result(second)).body.status, { timeout: 20_000 }).toMatch(/completed|failed/);
  });

  it('an update during calls loses no call, and the new code is served', async () => {
    const fn = await register('rolling', 'who', { environment: { GREETING: 'old' }, concurrentNum: 2 });
    let stop = false;
    const answers: Answer[] = [];
    const clients = Array.from({ length: 4 }, async () => {
      while (!stop) answers.push(await call(URN('rolling')));
    });
    await expect.poll(() => answers.length, { timeout: 20_000 }).toBeGreaterThan(20);
    const updated = await bed.ask(
      'PUT',
      '/serverless/v1/functions/0@e2e@rolling',
      { revisionId: fn.revisionId, environment: { GREETING: 'new' } },
      { meta: true },
    );
    expect(updated.body.code).toBe(0);
    await expect.poll(() => answers.some(({ body }) => body.greeting === 'new')).toBe(true);
    stop = true;
    await Promise.all(clients);
    expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
    expect(answers.at(-1)?.body.greeting).toBe('new');
  });

  it('versions run in parallel, each with its own environment', async () => {
    const fn = await register('versions', 'who', { environment: { GREETING: 'one' } });
    const publish = (revisionId: unknown, versionNumber: string) =>
      bed.ask(
        'POST',
        '/serverless/v1/functions/0@e2e@versions/versions',
        { revisionId, versionNumber },
        { meta: true },
      );
    expect((await publish(fn.revisionId, 'v1')).body.code).toBe(0);
    const updated = await bed.ask(
      'PUT',
      '/serverless/v1/functions/0@e2e@versions',
      { revisionId: fn.revisionId, environment: { GREETING: 'two' } },
      { meta: true },
    );
    const second = updated.body.function as { revisionId: string };
    expect((await publish(second.revisionId, 'v2')).body.code).toBe(0);
    expect((await call(URN('versions', 'v1'))).body.greeting).toBe('one');
    expect((await call(URN('versions', 'v2'))).body.greeting).toBe('two');
  });

  it('storage type copy gives each instance a writable copy, and local is read-only', async () => {
    const own = mkdtempSync(join(tmpdir(), 'rookery-copy-'));
    try {
      writeFileSync(join(own, 'fn.py'), CODE);
      await register('copied', 'write', { storageType: 'copy', codePath: own });
      expect((await call(URN('copied'))).body).toContain('made');
      await register('readonly', 'write', { codePath: own });
      expect(await call(URN('readonly'))).toMatchObject({ status: 500, body: { code: 4002 } });
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
  });

  it('a function of kind agent can be called, and pool labels are accepted', async () => {
    await register('resident', 'who', { kind: 'agent', concurrentNum: undefined });
    const answer = await call(URN('resident'), {}, { 'X-Pool-Label': '["a","b"]' });
    expect(answer.status).toBe(200);
  });

  it('a call to a function with maxInstance 0 is rejected with Retry-After', async () => {
    await register('none', 'who', { minInstance: 0, maxInstance: 0, timeout: 1 });
    const answer = await raw(URN('none'), {});
    expect([429, 503]).toContain(answer.status);
    expect(answer.headers.get('retry-after')).toBeTruthy();
  });

  it('each call of a oneshot function has its own instance', async () => {
    await register('once', 'who', { schedulePolicies: ['oneshot'] });
    const ids = [await raw(URN('once'), {}), await raw(URN('once'), {})].map(({ headers }) =>
      headers.get('x-instance-id'),
    );
    expect(new Set(ids).size).toBe(2);
    await expect.poll(async () => (await instances(URN('once'))).length).toBe(0);
  });

  it('a delete during calls loses none of them, and later calls find no function', async () => {
    await register('deleted', 'sleep');
    const running = call(URN('deleted'), 0.5);
    await expect.poll(async () => (await instances(URN('deleted'))).length).toBe(1);
    const { body } = await bed.ask('DELETE', '/serverless/v1/functions/0@e2e@deleted', undefined, { meta: true });
    expect(body.code).toBe(0);
    expect(await call(URN('deleted'))).toMatchObject({ status: 404, body: { code: 150424 } });
    expect((await running).status).toBe(200);
  });

  it("SSE clients that do not read keep the server's memory within their credit", async () => {
    await register('unread', 'flood', { concurrentNum: 10, maxInstance: 1 });
    await register('beside', 'busy');
    const rssMb = () =>
      Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${bed.server.pid}/status`, 'utf8'))?.[1]) / 1024;
    const before = rssMb();
    const leaving = new AbortController();
    const open = await Promise.all(
      Array.from({ length: 10 }, () => raw(URN('unread'), {}, { accept: 'text/event-stream' }, leaving.signal)),
    );
    expect(open.every(({ status }) => status === 200)).toBe(true);
    // Each handler tries to send 64 GB: without back-pressure the memory would grow at once.
    let most = 0;
    for (let looks = 0; looks < 20; looks++) {
      most = Math.max(most, rssMb());
      // A busy function does not slow another function.
      expect((await call(URN('beside'), { seconds: 0.05 })).status).toBe(200);
    }
    leaving.abort();
    expect(most - before).toBeLessThan(150);
  });

  it('a stop waits for running calls only within its grace and leaves no instance', async () => {
    await using own = await Bed.start({ 'fn.py': CODE }, { args: ['--set', 'stopGraceMs=300'] });
    const { body } = await own.ask(
      'POST',
      '/serverless/v1/functions',
      {
        name: '0@e2e@endless',
        kind: 'faas',
        runtime: own.runtime,
        cpu: 500,
        memory: 128,
        handler: 'fn.sleep',
        // The handler runs in the main thread, where the stop interrupts it.
        concurrentNum: 1,
        storageType: 'local',
        codePath: own.codeDir,
      },
      { meta: true },
    );
    expect(body.code).toBe(0);
    const running = own.ask('POST', `/serverless/v1/functions/${URN('endless')}/invocations`, 600).catch(() => null);
    const path = `/serverless/v1/functions/${URN('endless')}/instances`;
    await expect
      .poll(async () => JSON.stringify((await own.ask('GET', path)).body.instances))
      .toContain('"running_calls":1');
    expect(await own.server.end('SIGTERM')).toBe(0);
    await running;
    own.server = await own.server.next();
    expect((await own.ask('GET', path)).body.instances).toEqual([]);
  }, 60_000);
});
