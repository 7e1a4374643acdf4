import { describe, expect, test } from 'vitest';
import { type Alarm, afterAlarm, decideAlarm, readAlarm, readSavedAlarms } from './alarm.ts';

const NOW_MS = Date.UTC(2026, 10, 20, 12);
const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;
const read = (body: object) => readAlarm(body as Record<string, unknown>, 'a', 'id-1', NOW_MS);

describe('readAlarm', () => {
  test.each([
    ['at of RFC 3339', { at: '2026-11-20T13:00:00+01:00' }, NOW_MS],
    ['at in milliseconds', { at: NOW_MS + 5 }, NOW_MS + 5],
    ['after', { after: 1.5 }, NOW_MS + 1500],
    ['every, first after one interval', { every: 5 }, NOW_MS + 5000],
    ['cron in UTC', { cron: '0 3 * * *' }, Date.UTC(2026, 10, 21, 3)],
    ['cron in a zone', { cron: '0 3 * * *', tz: 'Europe/Berlin' }, Date.UTC(2026, 10, 21, 2)],
  ])('reads %s', (_, body, scheduledAtMs) => {
    expect(read(body)).toMatchObject({ name: 'a', id: 'id-1', scheduledAtMs, dueAtMs: scheduledAtMs, payload: 'null' });
  });

  test('reads payload and max_late_seconds', () => {
    expect(read({ after: 0, payload: { a: [1] }, max_late_seconds: 10 })).toMatchObject({
      payload: '{"a":[1]}',
      maxLateMs: 10_000,
    });
  });

  test.each([
    [{}, 'exactly one of at, after, every and cron is required'],
    [{ after: 1, every: 5 }, 'exactly one of at, after, every and cron is required'],
    [{ after: 1, tz: 'UTC' }, 'tz needs cron'],
    [{ at: 'tomorrow' }, 'at must be a time of RFC 3339, or milliseconds since 1970'],
    [{ every: 4 }, 'every must be between 5 and'],
    [{ cron: '* * * * * *' }, 'cron or tz is wrong: it must have 5 fields'],
    [{ cron: '0 0 30 2 *' }, 'cron or tz is wrong: it has no next time'],
    [{ cron: '0 3 * * *', tz: 'Nowhere/Else' }, 'cron or tz is wrong'],
    [{ after: 1, payload: 'x'.repeat(16_384) }, 'payload has 16386 bytes, more than the limit of 16384'],
  ])('refuses %j', (body, text) => {
    expect(() => read(body)).toThrow(text);
  });
});

describe('readSavedAlarms', () => {
  test('reads alarms that are set and cancelled, in order', () => {
    const json = JSON.stringify([{ name: 'b' }, { name: 'a', at: NOW_MS, payload: 1 }]);
    expect(readSavedAlarms(json, () => 'id-1', NOW_MS)).toMatchObject([
      { kind: 'drop', name: 'b' },
      { kind: 'put', alarm: { name: 'a', id: 'id-1', scheduledAtMs: NOW_MS, payload: '1' } },
    ]);
    expect(readSavedAlarms('', () => 'id-1', NOW_MS)).toEqual([]);
  });

  test.each(['{}', '[1]', '[{}]', '[{"name":""}]', '[{"name":"a","at":"x"}]', '[{"name":"a","cron":"x"}]'])(
    'refuses %s',
    json => {
      expect(() => readSavedAlarms(json, () => 'id-1', NOW_MS)).toThrow('invalid request body');
    },
  );
});

describe('decideAlarm', () => {
  const decide = (alarm: Alarm, nowMs: number) => decideAlarm(alarm, 'id-2', nowMs);
  const once = (more = {}) => read({ at: NOW_MS, ...more });
  /** An alarm for each minute, whose first time was at `NOW_MS`. */
  const minutely = (more: Partial<Alarm> = {}): Alarm => ({
    ...read({ every: 60 }),
    scheduledAtMs: NOW_MS,
    dueAtMs: NOW_MS,
    ...more,
  });

  test('delivers an alarm that is due once, however late', () => {
    expect(decide(once(), NOW_MS + 24 * HOUR_MS)).toMatchObject({ kind: 'deliver', alarm: { missed: 0 } });
  });

  test('drops an alarm that is later than its max_late_seconds', () => {
    const alarm = once({ max_late_seconds: 10 });
    expect(decide(alarm, NOW_MS + 10 * SECOND_MS)).toMatchObject({ kind: 'deliver' });
    expect(decide(alarm, NOW_MS + 10 * SECOND_MS + 1)).toEqual({
      kind: 'skip',
      change: { kind: 'drop', name: 'a', id: 'id-1' },
      isDropped: true,
    });
  });

  test('delivers a recurring alarm that is on time', () => {
    expect(decide(minutely(), NOW_MS + 100)).toMatchObject({
      kind: 'deliver',
      alarm: { scheduledAtMs: NOW_MS, missed: 0 },
    });
  });

  test('delivers a recurring alarm once for all times that an outage has missed', () => {
    expect(decide(minutely(), NOW_MS + 11 * 60_000 + 20_000)).toMatchObject({
      kind: 'deliver',
      alarm: { scheduledAtMs: NOW_MS + 11 * 60_000, missed: 11 },
    });
  });

  test('skips missed times when the next regular time is nearer, and counts them there', () => {
    const decision = decide(minutely(), NOW_MS + 11 * 60_000 + 40_000);
    const next = { id: 'id-2', scheduledAtMs: NOW_MS + 12 * 60_000, dueAtMs: NOW_MS + 12 * 60_000, missed: 12 };
    expect(decision).toMatchObject({
      kind: 'skip',
      isDropped: false,
      change: { kind: 'change', id: 'id-1', to: next },
    });
    expect(decide(minutely({ ...next }), next.dueAtMs)).toMatchObject({ kind: 'deliver', alarm: { missed: 12 } });
  });

  test('counts the missed times of a cron alarm', () => {
    const daily = { ...read({ cron: '0 12 * * *' }), scheduledAtMs: NOW_MS, dueAtMs: NOW_MS };
    expect(decide(daily, NOW_MS + 50 * HOUR_MS)).toMatchObject({
      kind: 'deliver',
      alarm: { scheduledAtMs: NOW_MS + 48 * HOUR_MS, missed: 2 },
    });
  });

  test('delivers a retry although its regular time is long past', () => {
    expect(decide(minutely({ attempt: 3 }), NOW_MS + 40_000)).toMatchObject({ kind: 'deliver', alarm: { attempt: 3 } });
  });
});

describe('afterAlarm', () => {
  test('drops an alarm that was due once', () => {
    expect(afterAlarm(read({ after: 1 }), 'id-2', NOW_MS)).toEqual({ kind: 'drop', name: 'a', id: 'id-1' });
  });

  test('gives a recurring alarm its next time after now, with another id and no attempts', () => {
    const alarm = { ...read({ every: 60 }), scheduledAtMs: NOW_MS, attempt: 2, missed: 3 };
    expect(afterAlarm(alarm, 'id-2', NOW_MS + 150_000)).toMatchObject({
      kind: 'change',
      name: 'a',
      id: 'id-1',
      to: { id: 'id-2', scheduledAtMs: NOW_MS + 180_000, dueAtMs: NOW_MS + 180_000, attempt: 0, missed: 0 },
    });
  });
});
