import { once } from 'node:events';
import { PassThrough, Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { EventLog } from './event-log.ts';
import { EventReader } from './event-reader.ts';

const FORMAT = {
  event: ({ data }: { readonly data: string }) => `${(JSON.parse(data) as { job: string }).job}\n`,
  marker: (type: string) => `${type}\n`,
  heartbeat: ':\n',
};

const logOf = (count: number): EventLog => {
  const log = new EventLog();
  for (let at = 1; at <= count; at++) log.add('a', 'job', { job: `${at}` });
  return log;
};

test('a stream that is not followed ends behind the newest events', async () => {
  const log = logOf(5);
  const to = new PassThrough();
  new EventReader({ log, to, isWanted: () => true, format: FORMAT }).startWithRecent(2, false);
  log.add('a', 'job', { job: 'later' });
  expect((await to.toArray()).join('')).toBe('hello\n4\n5\n');
});

test('a stream that is not followed ends at once when no event is wanted', async () => {
  const to = new PassThrough();
  new EventReader({ log: logOf(3), to, isWanted: () => false, format: FORMAT }).startWithRecent(2, false);
  expect((await to.toArray()).join('')).toBe('hello\n');
});

test('a slow reader of a stream that is not followed gets all events before the end', async () => {
  const log = logOf(500);
  let text = '';
  const to = new Writable({
    highWaterMark: 16,
    write(chunk, _encoding, done) {
      text += chunk;
      setImmediate(done);
    },
  });
  const finished = once(to, 'finish');
  new EventReader({ log, to, isWanted: () => true, format: FORMAT }).startWithRecent(1000, false);
  for (let at = 0; at < 10; at++) log.add('a', 'job', { job: 'later' });
  await finished;
  expect(text.split('\n')).toEqual(['hello', ...Array.from({ length: 500 }, (_, at) => `${at + 1}`), '']);
});
