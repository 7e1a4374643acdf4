import { expect, test, vi } from 'vitest';
import { TenantBudget } from '../../src/lib/budgets.ts';
import { callOf, gate, Harness, specOf, TENANT } from './harness.ts';

test('10 parallel calls of one agent run strictly one after another in order of arrival', async () => {
  await using harness = await Harness.open();
  const trace: string[] = [];
  harness.driver.handlers.set('slow', async event => {
    trace.push(`start ${event}`);
    await new Promise(resolve => setImmediate(resolve));
    trace.push(`end ${event}`);
  });
  const id = await harness.create('a', { handler: 'slow' });
  const numbers = Array.from({ length: 10 }, (_, n) => n);
  await Promise.all(numbers.map(n => harness.value(id, n)));
  expect(trace).toEqual(numbers.flatMap(n => [`start ${n}`, `end ${n}`]));
});

test('a handler that raises fails its call with a code, and the instance continues', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'fail' });
  for (let i = 0; i < 2; i++) {
    expect(await harness.invoke(id)).toMatchObject({
      ok: false,
      code: 4002,
      text: 'Fail to run user call handler. err: broken.',
    });
  }
});

test('a call to an instance that does not exist, or of another tenant, is not found', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { tenant: 'other' });
  for (const unknown of [id, 'ffffffff-ffff-4fff-bfff-ffffffffffff', '']) {
    const refused = { code: 'not_found', message: `instance not found: ${unknown}` };
    await expect(harness.invoke(unknown)).rejects.toMatchObject(refused);
    await expect(harness.agents.get(TENANT, unknown)).rejects.toMatchObject(refused);
    await expect(harness.agents.delete(TENANT, unknown, null)).rejects.toMatchObject(refused);
    await expect(harness.agents.restart(TENANT, unknown)).rejects.toMatchObject(refused);
    const request = { argv: ['true'], workingDir: '', env: {}, stdin: '', timeoutMs: 1000, maxOutputBytes: 10 };
    const { signal } = new AbortController();
    await expect(harness.agents.exec(TENANT, unknown, request, signal)).rejects.toMatchObject(refused);
    const tail = { tail: null, sinceMs: null, follow: false };
    await expect(harness.agents.logs(TENANT, unknown, tail, signal)).rejects.toMatchObject(refused);
  }
  expect((await harness.agents.list({ tenant: TENANT, limit: 10, cursor: null })).instances).toEqual([]);
});

test('calls above the waiting bound are refused at once, and the others still run', async () => {
  await using harness = await Harness.open({ maxWaitingCalls: 3 });
  const held = gate();
  harness.driver.handlers.set('held', () => held.opened);
  const id = await harness.create('a', { handler: 'held' });
  const taken = [1, 2, 3, 4].map(() => harness.invoke(id));
  await expect(harness.invoke(id)).rejects.toMatchObject({
    code: 'resource_exhausted',
    message: 'too many calls are waiting',
    retryAfterSeconds: 1,
  });
  held.open();
  for (const outcome of await Promise.all(taken)) expect(outcome.ok).toBe(true);
  expect((await harness.invoke(id)).ok).toBe(true);
});

test('bodies of open calls are bounded in bytes, over all instances', async () => {
  await using harness = await Harness.open({ openCallBytes: new TenantBudget(1000) });
  const held = gate();
  harness.driver.handlers.set('held', () => held.opened);
  const [a, b] = [await harness.create('a', { handler: 'held' }), await harness.create('b', { handler: 'held' })];
  const body = Buffer.from(JSON.stringify('x'.repeat(600)));
  const taken = harness.invoke(a, {}, { body });
  await expect(harness.invoke(b, {}, { body })).rejects.toMatchObject({
    ...{ code: 'resource_exhausted', message: 'the memory for open calls is full', retryAfterSeconds: 1 },
  });
  held.open();
  expect((await taken).ok).toBe(true);
  expect((await harness.invoke(b, {}, { body })).ok).toBe(true);
  expect(harness.agents.openCalls).toBe(0);
});

test('open calls of one tenant do not fill all memory when a tenant has a limit', async () => {
  await using harness = await Harness.open({ openCallBytes: new TenantBudget(2000, 1000) });
  const held = gate();
  harness.driver.handlers.set('held', () => held.opened);
  const [a, b] = [await harness.create('a', { handler: 'held' }), await harness.create('b', { handler: 'held' })];
  const other = await harness.agents.create({ spec: specOf('c', { tenant: 'other', handler: 'held' }) });
  const body = Buffer.from(JSON.stringify('x'.repeat(600)));
  const taken = harness.invoke(a, {}, { body });
  await expect(harness.invoke(b, {}, { body })).rejects.toMatchObject({ message: 'the memory for open calls is full' });
  const theirs = harness.agents.invoke('other', other.id, callOf({}, { body }));
  held.open();
  expect([(await taken).ok, (await theirs).ok]).toEqual([true, true]);
  expect((await harness.invoke(b, {}, { body })).ok).toBe(true);
});

test('a call beyond its time limit fails and is cancelled in the instance, which continues', async () => {
  await using harness = await Harness.open();
  let reason: unknown;
  harness.driver.handlers.set('stuck', (event, { signal }) => {
    if (event === 'quick') return 'done';
    signal.addEventListener('abort', () => {
      reason = signal.reason;
    });
    return new Promise(() => undefined);
  });
  const id = await harness.create('a', { handler: 'stuck' });
  await expect(harness.invoke(id, {}, { timeoutMs: 20 })).rejects.toMatchObject({
    code: 'deadline_exceeded',
    message: 'timed out after 0.02 s',
  });
  expect(await harness.value(id, 'quick')).toBe('done');
  expect(reason).toBe('timeout');
});

test('a call that requests more time than its instance allows ends at the limit of the instance', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('stuck', () => new Promise(() => undefined));
  const id = await harness.create('a', { handler: 'stuck', callTimeoutMs: 20 });
  await expect(harness.invoke(id, {}, { timeoutMs: 8_640_000_000 })).rejects.toMatchObject({
    code: 'deadline_exceeded',
    message: 'timed out after 0.02 s',
  });
});

test('the adoption of an agent counts towards the time limit of the first call', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  await harness.closeServer();
  const { opened, open } = gate();
  harness.driver.fallSilent(id, opened);
  harness.driver.faults.away = 'the daemon is away';
  await harness.newServer().start();
  harness.driver.faults.away = undefined;
  await expect(harness.invoke(id, {}, { timeoutMs: 30 })).rejects.toMatchObject({
    code: 'deadline_exceeded',
    message: 'timed out after 0.03 s',
  });
  const left = new AbortController();
  const leaving = harness.invoke(id, {}, { signal: left.signal });
  left.abort();
  await expect(leaving).rejects.toMatchObject({ code: 'unavailable', message: 'the caller went away' });
  open();
  // Neither call has run.
  await vi.waitFor(async () => expect(await harness.value(id)).toBe(1));
});

test('a timeout longer than the maximum timer of Node does not end a call at once', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'echo', callTimeoutMs: 8_640_000_000 });
  await expect(harness.invoke(id, { a: 1 }, { timeoutMs: 8_640_000_000 })).resolves.toMatchObject({ ok: true });
});

test('a client that disconnects frees its slot, running or waiting', async () => {
  await using harness = await Harness.open({ maxWaitingCalls: 1 });
  const ran: unknown[] = [];
  harness.driver.handlers.set('held', (event, { signal }) => {
    ran.push(event);
    if (event === 'last') return 'done';
    return new Promise((_, reject) => signal.addEventListener('abort', reject));
  });
  const id = await harness.create('a', { handler: 'held' });
  const abort = new AbortController();
  const { signal } = abort;
  const calls = ['running', 'waiting'].map(event =>
    expect(harness.invoke(id, event, { signal })).rejects.toMatchObject({ code: 'unavailable' }),
  );
  await vi.waitFor(() => expect(ran).toEqual(['running']));
  abort.abort();
  await Promise.all(calls);
  await vi.waitFor(async () => expect(await harness.value(id, 'last')).toBe('done'));
  expect(ran).toEqual(['running', 'last']);
});

test('exec runs a command in the instance with the variables of the platform and of the caller', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { env: { MINE: '1', LANG: 'C' } });
  const result = await harness.agents.exec(
    TENANT,
    id,
    { argv: ['/usr/bin/env'], workingDir: '', env: {}, stdin: '', timeoutMs: 10_000, maxOutputBytes: 10_000 },
    new AbortController().signal,
  );
  expect(result.returncode).toBe(0);
  const lines = result.stdout.split('\n');
  expect(lines).toEqual(expect.arrayContaining([`ROOKERY_INSTANCE_ID=${id}`, 'MINE=1', 'LANG=C', 'HOME=/tmp']));
});

test('logs are read from a live instance and from a FAILED one; exec needs a live one', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('say', (event, { print }) => print(String(event)));
  const id = await harness.create('a', { handler: 'say' });
  await harness.value(id, 'one');
  await harness.value(id, 'two');
  const { signal } = new AbortController();
  const read = async () => {
    const chunks = [];
    const logs = await harness.agents.logs(TENANT, id, { tail: null, sinceMs: null, follow: false }, signal);
    for await (const chunk of logs) chunks.push(chunk);
    return Buffer.concat(chunks).toString();
  };
  expect(await read()).toBe('one\ntwo\n');
  harness.driver.kill(id);
  await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED'));
  expect(await read()).toBe('one\ntwo\n');
  const request = { argv: ['true'], workingDir: '', env: {}, stdin: '', timeoutMs: 1000, maxOutputBytes: 10 };
  await expect(harness.agents.exec(TENANT, id, request, signal)).rejects.toMatchObject({
    code: 'failed_precondition',
    message: `instance ${id} is not running`,
  });
});

test('the list of agents is ordered by id and continues after its cursor until the end', async () => {
  await using harness = await Harness.open();
  const ids = await Promise.all(Array.from({ length: 5 }, (_, n) => harness.create(`a${n}`)));
  ids.sort();
  const page = (cursor: string | null) => harness.agents.list({ tenant: TENANT, limit: 2, cursor });
  const seen: string[] = [];
  let cursor: string | null = null;
  for (let pages = 0; pages < 3; pages++) {
    const { instances, nextCursor } = await page(cursor);
    seen.push(...instances.map(({ id }) => id));
    expect(nextCursor === null).toBe(pages === 2);
    cursor = nextCursor;
  }
  expect(seen).toEqual(ids);
  const byName = await harness.agents.list({ tenant: TENANT, limit: 2, cursor: null, name: 'a3' });
  expect(byName.instances.map(({ spec }) => spec.name)).toEqual(['a3']);
});
