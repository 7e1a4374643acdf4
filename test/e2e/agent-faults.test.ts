import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Bed } from './agents.ts';

const FAULTS = `
import ctypes, os, signal, sys, threading, time
calls = 0

def echo(event, context):
    return event

def count(event, context):
    global calls
    calls += 1
    return calls

def sleep(event, context):
    time.sleep(event["seconds"])
    return "slept"

def fail(event, context):
    raise ValueError("boom")

def leave(event, context):
    sys.exit(3)

def together(event):
    while not os.path.exists("/code/" + event["gate"]):
        time.sleep(0.01)

def exit(event, context):
    together(event)
    os._exit(event["code"])

def killed(event, context):
    together(event)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)

def crash(event, context):
    together(event)
    ctypes.string_at(0)

def chatty(event, context):
    line = "x" * 1023 + "\\n"
    for _ in range(100 * 1024):
        sys.stdout.write(line)
    sys.stdout.flush()
    return "printed"

def large(event, context):
    return "x" * (7 * 1024 * 1024)

def eat(event, context):
    hoard = []
    while True:
        hoard.append(bytearray(16 * 1024 * 1024))

def fork(event, context):
    while True:
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        except OSError as error:
            return "refused: %s" % error.errno

def nan(event, context):
    return float("nan")

def unserializable(event, context):
    return {1, 2}
`;

/** Faults of handlers and clients end as one clear error within their time and do not affect other agents. */
describe('faults of handlers and clients', () => {
  let bed: Bed;
  let neighbour: string;

  beforeAll(async () => {
    bed = await Bed.start({ 'faults.py': FAULTS });
    neighbour = await bed.create('neighbour', 'faults.count');
  });
  afterAll(() => bed?.[Symbol.asyncDispose]());

  let names = 0;
  const agent = (handler: string, spec: Record<string, unknown> = {}) =>
    bed.create(`a${++names}`, `faults.${handler}`, spec);
  const openCalls = async () => {
    const metrics = await (await fetch(`${bed.server.frontendUrl}/metrics`)).text();
    return Number(/^rookery_open_calls (\d+)$/m.exec(metrics)?.[1]);
  };
  const neighbourServes = async () => expect((await bed.invoke(neighbour)).status).toBe(200);

  it('a handler that exceeds its timeout fails the call with 500, and the instance takes the next call', async () => {
    const id = await agent('sleep');
    const answer = await bed.invoke(id, { seconds: 60 }, { headers: { 'X-Invoke-Timeout-Ms': '300' } });
    expect(answer).toMatchObject({ status: 500, body: { code: 500, message: 'invoke failed: timed out after 0.3 s' } });
    expect((await bed.invoke(id, { seconds: 0 })).body.data).toBe('slept');
    await neighbourServes();
  });

  it('a handler that raises answers 500 with code 4002 and the exception', async () => {
    const { status, body } = await bed.invoke(await agent('fail'));
    expect(status).toBe(500);
    expect(body.message).toMatch(/^invoke failed: code=4002 err=Fail to run user call handler\. err: .*boom.*\.$/);
  });

  it('a handler that calls sys.exit fails the call, and the instance stays', async () => {
    const id = await agent('leave');
    expect((await bed.invoke(id)).body.message).toContain('code=4002');
    expect((await bed.invoke(id)).body.message).toContain('code=4002');
  });

  it.each([
    ['exits', 'exit', { code: 7 }, 'invoke failed: instance exited: exit code 7'],
    ['is killed', 'killed', {}, 'invoke failed: instance exited: signal SIGKILL'],
    ['crashes', 'crash', {}, 'invoke failed: instance exited: signal SIGSEGV'],
  ])('a handler that %s fails open calls with the reason', async (_title, handler, event, message) => {
    const id = await agent(handler);
    const gate = `gate-${handler}`;
    const calls = Promise.all([1, 2, 3].map(() => bed.invoke(id, { ...event, gate })));
    await vi.waitFor(async () => expect(await openCalls()).toBe(3));
    writeFileSync(join(bed.codeDir, gate), '');
    const answers = await calls;
    for (const answer of answers) expect(answer).toMatchObject({ status: 500, body: { message } });
    expect(await bed.invoke(id)).toMatchObject({
      status: 404,
      body: { message: expect.stringContaining(`instance not found: ${id}`) },
    });
    const { body } = await bed.ask('GET', `/api/agent/${id}`);
    expect(body.instance).toMatchObject({ status: 'FAILED' });
    await neighbourServes();
  });

  it('a handler that prints 100 MB succeeds, and its log stays within the limit', async () => {
    const id = await agent('chatty');
    expect((await bed.invoke(id)).body.data).toBe('printed');
    const log = await fetch(`${bed.server.frontendUrl}/api/agent/${id}/logs`);
    const text = await log.text();
    expect(text.length).toBeGreaterThan(5 * 1024 * 1024);
    expect(text.length).toBeLessThan(31 * 1024 * 1024);
    await neighbourServes();
  });

  it('a handler that returns 7 MiB answers 500 with code 4004', async () => {
    const { body } = await bed.invoke(await agent('large'));
    expect(body.message).toBe('invoke failed: code=4004 err=response body size 7340034 exceeds the limit of 6291456');
  });

  it.each(['nan', 'unserializable'])('a handler whose value is not JSON (%s) answers 500, 4007', async handler => {
    expect((await bed.invoke(await agent(handler))).body.message).toContain('invoke failed: code=4007');
  });

  it('a handler that exceeds its memory ends only its own instance, with the reason', async () => {
    const { status, body } = await bed.invoke(await agent('eat', { memory: 64 }));
    expect(status).toBe(500);
    // In a memory control group the kernel kills the process; otherwise its own limit raises a MemoryError.
    expect(body.message).toMatch(/out of memory|MemoryError/);
    await neighbourServes();
  });

  it('a handler that forks endlessly reaches its process limit, and its agent can be deleted', async () => {
    const id = await agent('fork');
    expect((await bed.invoke(id)).body.data).toMatch(/^refused: /);
    await neighbourServes();
    expect((await bed.ask('DELETE', `/api/agent/${id}?grace=0`)).status).toBe(200);
  });

  it('a client that disconnects cancels its call, and the next call runs', async () => {
    const id = await agent('sleep');
    const leaving = new AbortController();
    const left = bed.invoke(id, { seconds: 60 }, { signal: leaving.signal });
    const waiting = bed.invoke(id, { seconds: 0 });
    // The service has both calls. It notices the disconnect whether the first one runs by then or not.
    setImmediate(() => leaving.abort());
    await expect(left).rejects.toThrow();
    expect((await waiting).body.data).toBe('slept');
  });

  it('an agent runs 10 parallel calls strictly one after another', async () => {
    const id = await agent('count');
    const answers = await Promise.all(Array.from({ length: 10 }, () => bed.invoke(id)));
    expect(answers.map(({ body }) => body.data).sort((a, b) => Number(a) - Number(b))).toEqual([
      1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
    ]);
  });

  it('20 parallel creates with one name make one agent, and the others answer its id', async () => {
    const body = bed.createBody('contested', 'faults.echo');
    const answers = await Promise.all(Array.from({ length: 20 }, () => bed.ask('POST', '/api/agent', body)));
    const won = answers.filter(({ status }) => status === 200);
    expect(won).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) {
      expect(answer).toMatchObject({
        status: 409,
        body: {
          message: 'failed to create agent: agent e2e/contested already exists',
          instance_id: won[0]?.body.instance_id,
        },
      });
    }
  });
});
