import { expect, test } from 'vitest';
import { filterOf, localMinute, matches, minuteOf, queryOf, severityOf, withDays } from './event-filter.ts';
import { Heading } from './heading.ts';
import type { LiveEvent } from './live.ts';

const NOW_MS = Date.parse('2026-01-31T12:00:00Z');
const MINUTE_MS = 60_000;

function eventOf(fields: Partial<LiveEvent>, minutesAgo = 0): LiveEvent {
  const at = new Date(NOW_MS - minutesAgo * MINUTE_MS).toISOString();
  return { id: '', key: JSON.stringify([fields, at]), type: 'ready', at, ...fields };
}

const agent = eventOf({ owner: 'agent', instance_id: 'a', namespace: 'default', name: 'first' }, 5);
const failed = eventOf({ ...agent, type: 'failed', reason: 'exit code 7', at: '2026-01-31T11:30:00.000Z' });
const alarm = eventOf({ ...agent, type: 'alarm_failed', alarm: 'Nightly', at: '2026-01-30T12:30:00.000Z' });
const instance = eventOf(
  { owner: 'function', instance_id: 'i', function: 'sn:cn:yrk:default:function:0@svc@told:v1' },
  180,
);
const job = eventOf({ type: 'job', job: 'j', status: 'PENDING', attempt: 2 }, 3 * 24 * 60);
const ALL = { agent, failed, alarm, instance, job };

test.each([
  ['', ['agent', 'failed', 'alarm', 'instance', 'job']],
  ['kind=failed', ['failed']],
  ['severity=error', ['failed', 'alarm']],
  ['severity=warning', ['job']],
  ['severity=none', ['agent', 'failed', 'alarm', 'instance', 'job']],
  ['text=EXIT+CODE', ['failed']],
  ['text=nightly', ['alarm']],
  ['text=default/first', ['agent', 'failed', 'alarm']],
  ['range=15m', ['agent']],
  ['range=1h', ['agent', 'failed']],
  ['range=24h', ['agent', 'failed', 'alarm', 'instance']],
  ['from=2026-01-31T11:30Z', ['agent', 'failed']],
  ['to=2026-01-30T12:30Z', ['alarm', 'job']],
  ['range=dates&from=2026-01-30T12:31Z&to=2026-01-31T11:29Z', ['instance']],
  ['range=1h&from=2026-01-01T00:00Z', ['agent', 'failed']],
  ['from=1', ['agent', 'failed', 'alarm', 'instance', 'job']],
  ['agent=a', ['agent', 'failed', 'alarm']],
  ['agent=a&kind=ready', ['agent']],
  ['function=svc@told', ['instance']],
  ['function=0@svc@told', ['instance']],
  ['function=sn:cn:yrk:default:function:0@svc@told:$latest', ['instance']],
  ['job=j', ['job']],
])('the filter of the address “%s” selects the events %j', (query, names) => {
  const filter = filterOf(new URLSearchParams(query));
  const selected = Object.entries(ALL).filter(([, event]) => matches(event, filter, NOW_MS));
  expect(selected.map(([name]) => name)).toEqual(names);
});

test.each([
  '',
  'agent=a&kind=failed&severity=error&text=a+b&range=15m',
  'function=0%40svc%40told',
  'range=dates&from=2026-01-30T12%3A31Z&to=2026-01-31T11%3A29Z',
])('the query of a filter is the address that it was read from: “%s”', query => {
  const again = queryOf(filterOf(new URLSearchParams(query)));
  expect([...again].toSorted()).toEqual([...new URLSearchParams(query)].toSorted());
});

test.each([
  [{ type: 'failed' }, 'error'],
  [{ type: 'job', status: 'FAILED' }, 'error'],
  [{ type: 'restarting' }, 'warning'],
  [{ type: 'job', status: 'PENDING', attempt: 1 }, 'info'],
  [{ type: 'job', status: 'STOPPED' }, 'info'],
  [{ type: 'ended' }, 'info'],
])('the severity of an event with the fields %j is %s', (fields, severity) => {
  expect(severityOf(eventOf(fields))).toBe(severity);
});

test('a list has a heading before each day, and none when all events are of today', () => {
  const noon = new Date(2026, 0, 31, 12);
  const at = (day: number) => eventOf({ at: new Date(2026, 0, day, 11).toISOString() });
  const [first, second, third] = [at(31), at(30), at(30)];
  expect(withDays([first], noon)).toEqual([first]);
  expect(withDays([first, second, third], noon)).toEqual([
    new Heading('Saturday, 2026-01-31'),
    first,
    new Heading('Friday, 2026-01-30'),
    second,
    third,
  ]);
  expect(withDays([second], noon)[0]).toEqual(new Heading('Friday, 2026-01-30'));
});

test('a field has a minute of an address in the zone of the browser', () => {
  expect(minuteOf(localMinute('2026-01-31T12:00Z'))).toBe('2026-01-31T12:00Z');
  expect([localMinute(''), minuteOf(''), minuteOf('soon')]).toEqual(['', '', '']);
});
