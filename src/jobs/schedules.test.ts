import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { TENANT } from '../../test/jobs/harness.ts';
import { JobNodes, type TestNode } from '../../test/jobs/nodes.ts';
import { FastClock } from '../../test/parts/fast-clock.ts';
import { unavailable } from '../core/error.ts';
import type { ScheduledSubmit } from '../storage/queries/job-submits.ts';
import { readSchedule } from './schedules.ts';

const WAIT = { timeout: 30_000 };
const EVERY_SECOND = '* * * * * *';

let clock: FastClock;

beforeEach(() => {
  clock = new FastClock();
});

afterEach(() => {
  clock.stop();
  vi.restoreAllMocks();
});

const create = (node: TestNode, id: string, cron = EVERY_SECOND, overlap = 'allow') =>
  node.jobs.service.schedules.create(
    TENANT,
    readSchedule({ schedule_id: id, cron, overlap, job: { entrypoint: 'true' } }),
  );

async function idsOn(node: TestNode): Promise<string[]> {
  const ids: string[] = [];
  for await (const page of node.jobs.service.jobs.list(TENANT)) ids.push(...page.map(({ id }) => id));
  return ids;
}

const until = (node: TestNode, count: number) =>
  vi.waitFor(async () => expect((await idsOn(node)).length).toBeGreaterThanOrEqual(count), WAIT);

const nodesOfJobs = async (node: TestNode) =>
  new Set(await Promise.all((await idsOn(node)).map(async id => (await node.jobs.job(id)).nodeId)));

/** Scheduled time of a job of the schedule `s`, in seconds since the epoch. */
function secondOf(id: string): number {
  const moment = id.slice('s-'.length);
  return Date.parse(moment.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z')) / 1000;
}

test('a schedule created on any node is submitted only by the node that holds the lease', async () => {
  await using nodes = await JobNodes.open();
  const [a, b] = [await nodes.start('a'), await nodes.start('b')];
  await create(b, 's');
  a.cluster.wake();
  expect(await a.jobs.service.schedules.get(TENANT, 's')).toMatchObject({ next_run_time: expect.any(String) });
  await until(b, 2);
  expect(await nodesOfJobs(b)).toEqual(new Set(['a']));
});

test('a schedule deleted on any node submits no further jobs', async () => {
  await using nodes = await JobNodes.open();
  const [a, b] = [await nodes.start('a'), await nodes.start('b')];
  await create(a, 's');
  await until(a, 1);
  await b.jobs.service.schedules.delete(TENANT, 's');
  await expect(a.jobs.service.schedules.get(TENANT, 's')).rejects.toMatchObject({ code: 'not_found' });
  // The record decides, even if the lease holder has not been notified yet.
  const before = (await idsOn(b)).length;
  await create(b, 'other');
  a.cluster.wake();
  await vi.waitFor(async () => expect((await idsOn(b)).some(id => id.startsWith('other-'))).toBe(true), WAIT);
  expect((await idsOn(b)).filter(id => id.startsWith('s-'))).toHaveLength(before);
});

const put = (node: TestNode, id: string, command: string, changes: object = {}) =>
  node.jobs.service.schedules.put(
    TENANT,
    readSchedule({ cron: EVERY_SECOND, overlap: 'allow', job: { entrypoint: command }, ...changes }, id),
  );

const commandsOn = (node: TestNode, ids: readonly string[]) =>
  Promise.all(ids.map(async id => (await node.jobs.job(id)).spec.entrypoint));

test('a schedule put on any node replaces the old one, and no scheduled time is skipped', async () => {
  await using nodes = await JobNodes.open();
  const [a, b] = [await nodes.start('a'), await nodes.start('b')];
  await create(a, 's');
  await until(a, 2);
  await put(b, 's', 'new');
  const before = new Set(await idsOn(b));
  // No later job has the old command, even if the lease holder has not been notified yet.
  a.cluster.wake();
  await until(b, before.size + 2);
  const ids = await idsOn(b);
  const later = ids.filter(id => !before.has(id));
  expect(new Set(await commandsOn(b, later))).toEqual(new Set(['new']));
  expect(new Set(await commandsOn(b, [...before]))).toEqual(new Set(['true']));
  const seconds = ids.map(secondOf).toSorted((one, other) => one - other);
  expect(seconds).toEqual(Array.from({ length: ids.length }, (_, index) => (seconds[0] as number) + index));
});

test('a time that was due before a put gets a job of the new schedule unless the pattern changed', async () => {
  await using nodes = await JobNodes.open();
  nodes.holder = 'nobody';
  const a = await nodes.start('a');
  clock.stop();
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 10, 20, 2, 59, 50) });
  const nightly = { cron: '0 3 * * *' };
  for (const id of ['same', 'other']) await put(a, id, 'old', nightly);
  vi.setSystemTime(Date.UTC(2026, 10, 20, 3, 0, 10));
  const answer = await put(a, 'same', 'new', nightly);
  expect(answer).toMatchObject({ create_time: String(Date.now()), next_run_time: String(Date.UTC(2026, 10, 21, 3)) });
  await put(a, 'other', 'new', { cron: '*/1 * * * *' });
  nodes.holder = 'a';
  a.cluster.wake();
  await until(a, 1);
  vi.setSystemTime(Date.UTC(2026, 10, 20, 3, 0, 20));
  await a.jobs.service.schedules.reload();
  expect(await idsOn(a)).toEqual(['same-20261120T030000Z']);
  expect(await commandsOn(a, await idsOn(a))).toEqual(['new']);
});

test('a time whose job could not be stored gets one job of the schedule that replaced the old one', async () => {
  await using nodes = await JobNodes.open({ isAlone: true });
  const write = nodes.writes.write.bind(nodes.writes);
  const a = await nodes.start('a');
  const tried: number[] = [];
  let isAway = true;
  vi.spyOn(nodes.writes, 'write').mockImplementation(async (operation, ...args) => {
    if (operation.name === 'insertScheduledJob') {
      tried.push((args[1] as unknown as ScheduledSubmit).atMs);
      if (isAway) throw unavailable('the database is away');
    }
    return await write(operation, ...args);
  });
  await put(a, 's', 'old');
  await vi.waitFor(() => expect(tried).not.toEqual([]), WAIT);
  await put(a, 's', 'new');
  isAway = false;
  await until(a, 2);
  const ids = (await idsOn(a)).toReversed();
  expect(secondOf(ids[0] as string)).toBe((tried[0] as number) / 1000);
  expect(new Set(await commandsOn(a, ids))).toEqual(new Set(['new']));
});

test('a refused put leaves the existing schedule unchanged', async () => {
  await using nodes = await JobNodes.open({ isAlone: true });
  const a = await nodes.start('a');
  const before = await put(a, 's', 'old', { cron: '0 3 * * *' });
  const env_vars = { KEY: { secret: 'nowhere' } };
  await expect(put(a, 's', 'new', { job: { entrypoint: 'new', runtime_env: { env_vars } } })).rejects.toThrow('secret');
  expect(await a.jobs.service.schedules.get(TENANT, 's')).toEqual(before);
  expect(() => readSchedule({ schedule_id: 't', cron: EVERY_SECOND, job: { entrypoint: 'true' } }, 's')).toThrow(
    'schedule_id must be that of the path, or absent',
  );
});

test('each scheduled time is submitted exactly once while the lease moves between nodes', async () => {
  await using nodes = await JobNodes.open();
  const both = [await nodes.start('a'), await nodes.start('b')];
  const [a] = both as [TestNode, TestNode];
  await create(a, 's');
  for (let round = 1; round <= 6; round++) {
    await until(a, round);
    nodes.holder = round % 3 === 0 ? 'nobody' : nodes.holder === 'a' ? 'b' : 'a';
    for (const { cluster } of both) cluster.wake();
    if (nodes.holder === 'nobody') {
      const second = Math.floor(Date.now() / 1000);
      await vi.waitFor(() => expect(Math.floor(Date.now() / 1000)).toBeGreaterThan(second + 1), WAIT);
      nodes.holder = 'b';
      for (const { cluster } of both) cluster.wake();
    }
  }
  nodes.holder = 'nobody';
  const seconds = (await idsOn(a)).map(secondOf).toSorted((one, other) => one - other);
  const first = seconds[0] as number;
  expect(seconds).toEqual(Array.from({ length: seconds.length }, (_, index) => first + index));
});

test('no scheduled time is skipped when the lease is lost and regained between two passes', async () => {
  await using nodes = await JobNodes.open();
  const a = await nodes.start('a');
  await create(a, 's');
  await until(a, 1);
  vi.spyOn(a.jobs.service.schedules, 'reload').mockResolvedValue();
  nodes.holder = 'nobody';
  const second = Math.floor(Date.now() / 1000);
  await vi.waitFor(() => expect(Math.floor(Date.now() / 1000)).toBeGreaterThan(second + 3), WAIT);
  const before = (await idsOn(a)).length;
  nodes.holder = 'a';
  await until(a, before + 5);
  const seconds = (await idsOn(a)).map(secondOf).toSorted((one, other) => one - other);
  expect(seconds).toEqual(Array.from({ length: seconds.length }, (_, index) => (seconds[0] as number) + index));
});

test('two nodes that both believe to hold the lease submit each scheduled time once', async () => {
  await using nodes = await JobNodes.open();
  const [a, b] = [await nodes.start('a'), await nodes.start('b')];
  for (const { cluster } of [a, b]) cluster.isHeld = () => true;
  await create(a, 's');
  b.cluster.wake();
  await until(a, 4);
  const ids = await idsOn(a);
  expect(new Set(ids).size).toBe(ids.length);
  // A late node does not submit a deleted job again.
  const [old] = ids.slice(-1) as [string];
  const { nodeId } = await a.jobs.job(old);
  await (nodeId === 'a' ? a : b).jobs.exit(old, 0);
  await a.jobs.untilEnded(old);
  await a.jobs.service.jobs.delete(TENANT, old);
  nodes.holder = 'c';
  const c = await nodes.start('c');
  c.cluster.wake();
  await until(a, 5);
  expect(await idsOn(a)).not.toContain(old);
});

test('overlap skip leaves out a time while the previous job is open on any node', async () => {
  await using nodes = await JobNodes.open();
  const [a, b] = [await nodes.start('a'), await nodes.start('b')];
  await create(a, 's', EVERY_SECOND, 'skip');
  await until(a, 1);
  nodes.holder = 'b';
  for (const { cluster } of [a, b]) cluster.wake();
  const second = Math.floor(Date.now() / 1000);
  await vi.waitFor(() => expect(Math.floor(Date.now() / 1000)).toBeGreaterThan(second + 2), WAIT);
  const [only, ...more] = await idsOn(b);
  expect(more).toEqual([]);
  await a.jobs.exit(only as string, 0);
  await until(b, 2);
});

test('overlap skip ignores jobs of other origin whose ids begin with the schedule id', async () => {
  await using nodes = await JobNodes.open({ isAlone: true });
  const a = await nodes.start('a');
  for (const id of ['s-by-hand', 's-20261120T100000Z-copy', 's-db-20261120T100000Z']) {
    await a.jobs.submit(id);
    await a.jobs.until(id, 'RUNNING');
  }
  await create(a, 's', EVERY_SECOND, 'skip');
  await vi.waitFor(async () => expect((await idsOn(a)).some(id => /^s-\d{8}T\d{6}Z$/.test(id))).toBe(true), WAIT);
});

test('a schedule submits nothing when the lease was lost before the write', async () => {
  await using nodes = await JobNodes.open();
  const a = await nodes.start('a');
  let asked = 0;
  a.cluster.fence = () => {
    asked += 1;
    throw new Error('this replica does not own "jobs" any more');
  };
  await create(a, 's');
  await vi.waitFor(() => expect(asked).toBeGreaterThan(1), WAIT);
  expect(await idsOn(a)).toEqual([]);
});

test.each([
  ['fails without an effect', false],
  ['succeeds without a confirmation', true],
])('a scheduled time has exactly one job when its write %s and is retried', async (_, isWritten) => {
  await using nodes = await JobNodes.open({ isAlone: true });
  const write = nodes.writes.write.bind(nodes.writes);
  const a = await nodes.start('a');
  const tried: number[] = [];
  vi.spyOn(nodes.writes, 'write').mockImplementation(async (operation, ...args) => {
    if (operation.name !== 'insertScheduledJob') return await write(operation, ...args);
    const { atMs } = args[1] as unknown as ScheduledSubmit;
    tried.push(atMs);
    // Fails the first two writes of the first scheduled time.
    if (atMs !== tried[0] || tried.length > 2) return await write(operation, ...args);
    if (isWritten) await write(operation, ...args);
    throw unavailable('the database is away');
  });
  await create(a, 's');
  await until(a, 2);
  const first = `s-${new Date(tried[0] as number).toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`;
  await a.jobs.until(first, 'RUNNING');
  expect((await idsOn(a)).filter(id => id === first)).toHaveLength(1);
  expect(a.jobs.driver.begun.filter(id => id === first)).toHaveLength(1);
});

const DAY_MS = 86_400_000;

test('a schedule submits immediately although decided_until_ms is a day in the future', async () => {
  await using nodes = await JobNodes.open({ isAlone: true });
  const a = await nodes.start('a');
  await put(a, 's', 'true', { cron: '0 0 1 1 *' });
  await nodes.database
    .updateTable('job_schedules')
    .set({ decided_until_ms: Date.now() + DAY_MS })
    .execute();
  await put(a, 's', 'true');
  await until(a, 1);
  await nodes.database
    .updateTable('job_schedules')
    .set({ decided_until_ms: Date.now() + DAY_MS })
    .execute();
  await until(a, (await idsOn(a)).length + 1);
});

test('a put resets decided_until_ms when the stored value is in the future', async () => {
  await using nodes = await JobNodes.open({ isAlone: true });
  const a = await nodes.start('a');
  for (const cron of ['0 0 1 1 *', '0 0 2 1 *']) {
    await put(a, 's', 'true', { cron: '0 0 1 1 *' });
    await nodes.database
      .updateTable('job_schedules')
      .set({ decided_until_ms: Date.now() + DAY_MS })
      .execute();
    await put(a, 's', 'true', { cron });
    const [row] = await nodes.database.selectFrom('job_schedules').select('decided_until_ms').execute();
    expect(row?.decided_until_ms).toBeLessThanOrEqual(Date.now());
  }
});
