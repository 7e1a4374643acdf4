import { expect, test } from 'vitest';
import { testFrontend } from '../../../test/http/frontend.ts';
import { LIMITS } from '../../core/limits.ts';
import { EventLog } from '../../events/event-log.ts';

const URN = 'sn:cn:yrk:default:function:0@svc@told:$latest';
const NAME = '0@svc@told';

function frontendWith(log: EventLog) {
  const frontend = testFrontend({ observed: { log, onSample: () => () => {}, visibleTo: null } as never });
  return {
    ask: (query: string) => frontend.send({ method: 'GET', url: `/api/events?${query}` }),
    /** Returns the fields `n` of the stored events. */
    async stored(query: string) {
      const { text } = await frontend.send({ method: 'GET', url: `/api/events?follow=false&${query}` });
      return [...text.matchAll(/^data: (.*)$/gm)]
        .map(([, data]) => (JSON.parse(data as string) as { readonly n?: number }).n)
        .filter(n => n !== undefined);
    },
    [Symbol.asyncDispose]: () => frontend[Symbol.asyncDispose](),
  };
}

test('GET /api/events returns the stored events of one agent also after 3000 events of others', async () => {
  const log = new EventLog();
  log.add('default', 'created', { owner: 'agent', instance_id: 'a', n: 1 });
  for (let count = 0; count < 3000; count++) log.add('default', 'ready', { owner: 'agent', instance_id: 'b' });
  log.add('default', 'failed', { owner: 'agent', instance_id: 'a', n: 2 });
  await using bed = await frontendWith(log);
  expect(await bed.stored(`agent=a&recent=${LIMITS.keptEvents}`)).toEqual([1, 2]);
  expect(await bed.stored('agent=a&recent=1')).toEqual([2]);
  expect(await bed.stored('agent=a&types=created&recent=9')).toEqual([1]);
});

test.each([
  ['agent=a', [1]],
  ['function=svc@told', [2, 3, 6]],
  [`function=${NAME}`, [2, 3, 6]],
  [`function=${encodeURIComponent(URN)}`, [2, 3, 6]],
  ['job=a', [4]],
  ['job=none', []],
  ['', [1, 2, 3, 4, 6]],
])('GET /api/events with “%s” returns the events %j of the own tenant', async (query, numbers) => {
  const log = new EventLog();
  log.startRun('aaaaaaaa', 0);
  log.add('default', 'ready', { owner: 'agent', instance_id: 'a', n: 1 });
  log.add('default', 'ready', { owner: 'function', instance_id: 'i', function: URN, n: 2 });
  log.add('default', 'scaled', { function: URN, n: 3 });
  log.add('default', 'job', { job: 'a', n: 4 });
  log.add('other', 'job', { job: 'a', n: 5 });
  const data = JSON.stringify({ type: 'scaled', function: URN, n: 6 });
  log.addOfRun('aaaaaaaa', 1, { tenant: 'default', type: 'scaled', data });
  await using bed = await frontendWith(log);
  expect(await bed.stored(`${query}&recent=100`)).toEqual(numbers);
});

test.each([
  ['recent=4097', 'recent must be an integer from 0 to 4096, got "4097"'],
  ['function=told', 'function must be <service>@<name>, or the URN of a function, got "told"'],
  ['agent=a&job=b', 'one of agent, function and job, not two'],
])('GET /api/events with “%s” is answered 400', async (query, message) => {
  await using bed = await frontendWith(new EventLog());
  const answer = await bed.ask(query);
  expect(answer.status).toBe(400);
  expect(answer.body).toMatchObject({ message: `invalid query: ${message}` });
});
