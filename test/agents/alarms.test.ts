import { randomUUID } from 'node:crypto';
import { expect, test, vi } from 'vitest';
import { type FailedAlarm, readAlarm } from '../../src/core/alarm.ts';
import { unavailable } from '../../src/core/error.ts';
import type { FinishedCall } from '../../src/core/finished-call.ts';
import type { InstanceSpec } from '../../src/core/instance.ts';
import type { CallHeader } from '../../src/runtime/protocol.ts';
import { Harness, TENANT } from './harness.ts';

const START_MS = Date.UTC(2026, 10, 20);
const WAIT = { timeout: 20_000 };

/** Creates a durable agent that notes its calls. The service has a clock that only `advance` moves. */
async function one(changes: Partial<InstanceSpec> = {}) {
  let nowMs = START_MS;
  const reported: FailedAlarm[] = [];
  const recorded: FinishedCall[] = [];
  const harness = await Harness.open({
    now: () => nowMs,
    alarmFailed: failed => reported.push(failed),
    callSink: { wants: () => true, push: call => recorded.push(call) },
  });
  const calls: { event: unknown; header: CallHeader; reason: string | undefined }[] = [];
  harness.driver.handlers.set('note', (event, { header, init }) => {
    calls.push({ event, header, reason: init.durable?.wake.reason });
  });
  const id = await harness.create('a', { handler: 'note', durable: { schema: 1 }, ...changes });
  return {
    harness,
    id,
    calls,
    reported,
    recorded,
    [Symbol.asyncDispose]: () => harness[Symbol.asyncDispose](),
    set: (name: string, body: Record<string, unknown>) =>
      harness.agents.alarms.set(TENANT, id, readAlarm(body, name, randomUUID(), nowMs)),
    alarms: () => harness.agents.alarms.list(TENANT, id),
    advance: (ms: number) => {
      nowMs += ms;
      harness.agents.alarms.look();
    },
  };
}

test('an alarm that is due calls the handler with the alarm, and is gone then', async () => {
  await using bed = await one();
  await bed.set('remind', { after: 60, payload: { tea: true } });
  const [alarm] = await bed.alarms();
  expect(alarm).toMatchObject({ name: 'remind', scheduledAtMs: START_MS + 60_000 });
  expect(await bed.harness.agents.get(TENANT, bed.id)).toMatchObject({
    savedState: { nextAlarmAtMs: START_MS + 60_000 },
  });
  bed.advance(60_000);
  await vi.waitFor(async () => expect(await bed.alarms()).toEqual([]), WAIT);
  expect(bed.calls).toMatchObject([
    {
      event: {
        alarm: {
          ...{ name: 'remind', id: alarm?.id, payload: { tea: true }, attempt: 1, missed: 0 },
          ...{ scheduled_at: '2026-11-20T00:01:00.000Z', fired_at: '2026-11-20T00:01:00.000Z' },
        },
      },
      header: { requestId: alarm?.id, headers: { 'x-rookery-event': 'alarm' } },
    },
  ]);
  expect(bed.calls[0]?.header).not.toHaveProperty('entry');
});

test('an alarm of an agent with an alarm entry is the event of that entry', async () => {
  await using bed = await one({ durable: { schema: 1, entries: { alarm: 'app.on_alarm' } } });
  await bed.set('remind', { after: 0 });
  await vi.waitFor(() => expect(bed.calls).toHaveLength(1), WAIT);
  expect(bed.calls[0]).toMatchObject({ event: { name: 'remind', payload: null }, header: { entry: 'alarm' } });
});

test('an alarm wakes a sleeping agent', async () => {
  await using bed = await one();
  const { agents } = bed.harness;
  await agents.sleep(TENANT, bed.id);
  await bed.set('remind', { after: 1 });
  bed.advance(1_000);
  await vi.waitFor(() => expect(bed.calls).toMatchObject([{ reason: 'alarm' }]), WAIT);
  expect(await agents.get(TENANT, bed.id)).toMatchObject({ status: 'RUNNING', wakes: 1 });
});

test('alarms that are due at once are all delivered', async () => {
  await using bed = await one();
  for (let each = 0; each < 100; each++) await bed.set(`a-${each}`, { after: 10 });
  bed.advance(10_000);
  await vi.waitFor(async () => expect(await bed.alarms()).toEqual([]), WAIT);
  expect(bed.calls).toHaveLength(100);
});

test('a recurring alarm gets its next regular time and another id', async () => {
  await using bed = await one();
  await bed.set('tick', { every: 60 });
  const [first] = await bed.alarms();
  bed.advance(60_000);
  await vi.waitFor(async () => expect(await bed.alarms()).toMatchObject([{ scheduledAtMs: START_MS + 120_000 }]), WAIT);
  const [second] = await bed.alarms();
  expect(second?.id).not.toBe(first?.id);
  bed.advance(60_000);
  await vi.waitFor(() => expect(bed.calls).toHaveLength(2), WAIT);
});

test('an alarm whose call fails is delivered again after 2, 4 … 256 s, and has failed after 8 attempts', async () => {
  await using bed = await one({ handler: 'fail' });
  await bed.set('remind', { after: 0 });
  let atMs = START_MS;
  for (let attempt = 1; attempt < 8; attempt++) {
    await vi.waitFor(async () => expect(await bed.alarms()).toMatchObject([{ attempt }]), WAIT);
    const pauseMs = Math.min(300_000, 1000 * 2 ** attempt);
    atMs += pauseMs;
    expect(await bed.alarms()).toMatchObject([{ dueAtMs: atMs, hasFailed: false }]);
    bed.advance(pauseMs);
  }
  await vi.waitFor(async () => expect(await bed.alarms()).toMatchObject([{ attempt: 8, hasFailed: true }]), WAIT);
  expect((await bed.alarms())[0]?.lastError).toContain('broken');
  await vi.waitFor(
    () =>
      expect(bed.reported).toEqual([
        {
          ...{ tenant: TENANT, agentId: bed.id, namespace: expect.any(String), name: 'a', alarm: 'remind' },
          reason: expect.stringContaining('broken'),
        },
      ]),
    WAIT,
  );
});

test('an alarm that is later than its max_late_seconds is dropped and reported', async () => {
  await using bed = await one();
  await bed.set('remind', { after: 60, max_late_seconds: 10 });
  bed.advance(71_000);
  await vi.waitFor(async () => expect(await bed.alarms()).toEqual([]), WAIT);
  const reason = 'dropped: it was 11 s late, more than its max_late_seconds';
  await vi.waitFor(() => expect(bed.reported).toMatchObject([{ alarm: 'remind', reason }]), WAIT);
  expect(bed.calls).toEqual([]);
});

test('a recurring alarm whose attempts have all failed goes on at its next time', async () => {
  await using bed = await one({ handler: 'fail' });
  await bed.set('tick', { every: 3600 });
  bed.advance(3_600_000);
  for (let attempt = 1; attempt < 8; attempt++) {
    await vi.waitFor(async () => expect(await bed.alarms()).toMatchObject([{ attempt }]), WAIT);
    bed.advance(1000 * 2 ** attempt);
  }
  await vi.waitFor(
    async () =>
      expect(await bed.alarms()).toMatchObject([
        { attempt: 0, hasFailed: false, scheduledAtMs: START_MS + 2 * 3_600_000 },
      ]),
    WAIT,
  );
});

test('a delivery during which the process ends counts as an attempt', async () => {
  await using bed = await one({ handler: 'exit' });
  bed.harness.driver.handlers.set('exit', (_event, { exit }) => exit(3));
  await bed.set('remind', { after: 0 });
  await vi.waitFor(async () => expect(await bed.alarms()).toMatchObject([{ attempt: 1 }]), WAIT);
  expect((await bed.alarms())[0]?.lastError).toContain('instance exited');
});

test('a delivery whose start fails is tried again and counts no attempt', async () => {
  await using bed = await one();
  const { agents, driver } = bed.harness;
  await agents.sleep(TENANT, bed.id);
  driver.faults.startError = unavailable('no start');
  await bed.set('remind', { after: 0 });
  await vi.waitFor(async () => expect((await bed.alarms())[0]?.dueAtMs).toBeGreaterThan(START_MS), WAIT);
  expect(await bed.alarms()).toMatchObject([{ attempt: 0 }]);
  driver.faults.startError = undefined;
  await vi.waitFor(() => {
    bed.advance(60_000);
    expect(bed.calls).toMatchObject([{ event: { alarm: { attempt: 1 } } }]);
  }, WAIT);
});

test('the next service delivers an alarm that became due while no service ran', async () => {
  await using bed = await one();
  await bed.set('remind', { after: 60 });
  await bed.harness.closeServer();
  bed.advance(3_600_000);
  expect(bed.calls).toEqual([]);
  await bed.harness.restartServer();
  await vi.waitFor(() => expect(bed.calls).toHaveLength(1), WAIT);
  await vi.waitFor(async () => expect(await bed.alarms()).toEqual([]), WAIT);
});

test('an alarm of a paused agent waits for its resume', async () => {
  await using bed = await one();
  const { agents } = bed.harness;
  await agents.pause(TENANT, bed.id);
  await bed.set('remind', { after: 1 });
  bed.advance(1_000);
  expect(await agents.get(TENANT, bed.id)).toMatchObject({ status: 'PAUSED' });
  expect(bed.calls).toEqual([]);
  await agents.resume(TENANT, bed.id);
  await vi.waitFor(() => expect(bed.calls).toHaveLength(1), WAIT);
});

test('a cancelled alarm is not delivered, and one of the same name replaces another', async () => {
  await using bed = await one();
  const { alarms } = bed.harness.agents;
  await bed.set('gone', { after: 1 });
  await bed.set('kept', { after: 1, payload: 1 });
  await bed.set('kept', { after: 2, payload: 2 });
  await alarms.cancel(TENANT, bed.id, 'gone');
  bed.advance(2_000);
  await vi.waitFor(() => expect(bed.calls).toMatchObject([{ event: { alarm: { payload: 2 } } }]), WAIT);
});

test('alarms are refused for another tenant, an unknown name, an agent that is not durable, and above 100', async () => {
  await using bed = await one();
  const { agents } = bed.harness;
  const alarm = readAlarm({ after: 1 }, 'a', 'id', START_MS);
  await expect(agents.alarms.set('other', bed.id, alarm)).rejects.toMatchObject({ code: 'not_found' });
  await expect(agents.alarms.list('other', bed.id)).rejects.toMatchObject({ code: 'not_found' });
  await expect(agents.alarms.cancel(TENANT, bed.id, 'a')).rejects.toThrow(`instance ${bed.id} has no alarm a`);
  const plain = await bed.harness.create('plain');
  await expect(agents.alarms.set(TENANT, plain, alarm)).rejects.toThrow('is not durable');
  for (let each = 0; each < 100; each++) await bed.set(`a-${each}`, { after: 10 });
  await expect(bed.set('more', { after: 10 })).rejects.toMatchObject({
    code: 'failed_precondition',
    message: 'an agent has at most 100 alarms',
  });
  await bed.set('a-0', { after: 20 });
  expect(await bed.alarms()).toHaveLength(100);
});

test('the alarms of a deleted agent are gone', async () => {
  await using bed = await one();
  const { agents, database } = bed.harness;
  await bed.set('remind', { after: 1 });
  await agents.delete(TENANT, bed.id, null);
  expect(await database.selectFrom('agent_alarms').selectAll().execute()).toEqual([]);
});

test('the call history has each attempt of an alarm, with its name and one trace', async () => {
  await using bed = await one();
  let attempts = 0;
  bed.harness.driver.handlers.set('note', () => {
    attempts += 1;
    if (attempts === 1) throw new Error('broken');
    return null;
  });
  await bed.set('remind', { after: 0 });
  const [alarm] = await bed.alarms();
  await vi.waitFor(async () => expect(await bed.alarms()).toMatchObject([{ attempt: 1 }]), WAIT);
  bed.advance(2_000);
  const same = { kind: 'agent', target: bed.id, mode: 'alarm', caller: 'alarm remind', traceId: alarm?.id };
  await vi.waitFor(
    () =>
      expect(bed.recorded).toMatchObject([
        { ...same, id: alarm?.id, code: expect.stringMatching(/^\d+$/), error: expect.stringContaining('broken') },
        { ...same, id: expect.not.stringMatching(alarm?.id ?? ''), code: 'ok', error: '' },
      ]),
    WAIT,
  );
});
