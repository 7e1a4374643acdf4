import { expect, test } from 'vitest';
import { EventLog } from './event-log.ts';

const idAt = (log: EventLog, place: number) => log.at(place)?.id ?? '';

test('an event has its type, time and replica in one line of JSON even when a text has line breaks', () => {
  const log = new EventLog({ now: () => Date.parse('2026-11-20T10:00:00Z'), node: 'n' });
  log.add('a', 'failed', { reason: 'two\nlines\r\n\nid: 7' });
  const data = '{"type":"failed","at":"2026-11-20T10:00:00.000Z","node":"n","reason":"two\\nlines\\r\\n\\nid: 7"}';
  expect(log.at(1)).toMatchObject({ tenant: 'a', type: 'failed', data, id: `${log.run}-1` });
});

test('seenBy returns the last event number of this replica and of other replicas up to an id', () => {
  const log = new EventLog();
  log.startRun('aaaaaaaa', 0);
  log.add('a', 'job', {});
  log.addOfRun('aaaaaaaa', 1, { tenant: 'a', type: 'job', data: '{}' });
  log.addOfRun('aaaaaaaa', 1, { tenant: 'a', type: 'job', data: '{}' });
  expect(log.end).toBe(3);
  expect(log.seenBy(idAt(log, 1))).toEqual(
    new Map([
      [log.run, 1],
      ['aaaaaaaa', 0],
    ]),
  );
  expect(log.seenBy(idAt(log, 2))).toEqual(
    new Map([
      [log.run, 1],
      ['aaaaaaaa', 1],
    ]),
  );
  expect(log.seenBy(log.idBefore(log.end))).toEqual(log.seenBy(idAt(log, 2)));
});

test.each(['', 'x', '00000000-1', '9', 'ffffffff-99999999999999999', '0000000a-1.00000000-1'])(
  'seenBy returns null for the unknown id %j',
  id => {
    const log = new EventLog();
    log.add('a', 'job', {});
    expect(log.seenBy(id)).toBeNull();
  },
);

test('seenBy returns null for an id of the future, or when its successors are no longer kept', () => {
  const log = new EventLog({ size: 2 });
  log.add('a', 'job', {});
  const first = idAt(log, 1);
  expect(log.seenBy(`${log.run}-5`)).toBeNull();
  for (const _ of [1, 2]) log.add('a', 'job', {});
  expect(log.seenBy(first)).not.toBeNull();
  log.add('a', 'job', {});
  expect(log.seenBy(first)).toBeNull();
  expect([log.at(2), log.at(3)]).toEqual([undefined, expect.anything()]);
});

test('the log adds a reset when events of another replica are missing or that replica is lost', () => {
  const log = new EventLog();
  log.startRun('aaaaaaaa', 0);
  log.addOfRun('aaaaaaaa', 1, { tenant: 'a', type: 'job', data: '{}' });
  log.startRun('aaaaaaaa', 1);
  expect(log.end).toBe(2);
  log.startRun('aaaaaaaa', 9);
  expect(log.at(2)).toMatchObject({ type: 'reset', isLocal: true });
  expect(log.seenBy(`${log.run}-0.aaaaaaaa-1`)).toBeNull();
  log.lost('aaaaaaaa');
  expect(log.at(3)).toMatchObject({ type: 'reset', isLocal: true });
});

test('the log remembers a bounded number of lost replicas, and seenBy returns null for older ids', () => {
  const log = new EventLog();
  log.add('a', 'job', {});
  const before = idAt(log, 1);
  const runs = Array.from({ length: 100 }, (_, at) => (at + 16).toString(16).padStart(8, '0'));
  for (const run of runs) {
    log.startRun(run, 0);
    log.addOfRun(run, 1, { tenant: 'a', type: 'job', data: '{}' });
    log.lost(run);
  }
  expect(idAt(log, log.end - 1).split('.').length).toBeLessThan(40);
  expect(log.seenBy(before)).toBeNull();
  expect(log.seenBy(idAt(log, log.end - 1))).not.toBeNull();
});

test('the log keeps as many events as its size, and wakes readers once for a burst', async () => {
  const log = new EventLog({ size: 8 });
  let wakes = 0;
  const end = log.onEvents(() => {
    wakes += 1;
  });
  for (let count = 0; count < 1000; count++) log.add('a', 'ready', { count });
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  expect(wakes).toBe(1);
  const kept = Array.from({ length: log.end }, (_, place) => log.at(place)).filter(event => event !== undefined);
  expect(kept).toHaveLength(8);
  end();
  log.add('a', 'ready', {});
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  expect(wakes).toBe(1);
});
