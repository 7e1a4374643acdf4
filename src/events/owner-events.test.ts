import { expect, test, vi } from 'vitest';
import type { InstanceChange } from '../instances/changes.ts';
import { EventLog } from './event-log.ts';
import { OwnerEvents } from './owner-events.ts';

const URN = 'sn:cn:yrk:a:function:0@svc@f:$latest';

function of(kind: InstanceChange['kind'], id: string, owner: 'agent' | 'function' = 'function'): InstanceChange {
  const key = owner === 'function' ? URN : id;
  return { kind, id, owner: { kind: owner, key }, tenant: 'a', namespace: 'n', name: 'x', reason: '' };
}

function eventsOf(log: EventLog): Record<string, unknown>[] {
  return Array.from({ length: log.end }, (_, place) => log.at(place))
    .filter(event => event !== undefined)
    .map(({ data }) => JSON.parse(data) as Record<string, unknown>);
}

test('a burst of starts and exits of one version becomes one scaled event with the final counts', async () => {
  const log = new EventLog();
  const owners = new OwnerEvents(log);
  for (const id of ['1', '2', '3']) owners.instance(of('created', id));
  for (const id of ['1', '2']) owners.instance(of('ready', id));
  owners.instance(of('ended', '3'));
  await vi.waitFor(() =>
    expect(eventsOf(log).filter(({ type }) => type === 'scaled')).toEqual([
      { type: 'scaled', at: expect.any(String), function: URN, instances: 2, ready: 2 },
    ]),
  );
});

test('an adopted instance counts but makes no event', async () => {
  const log = new EventLog();
  const owners = new OwnerEvents(log);
  owners.instance(of('found', '1'));
  owners.instance(of('created', '2'));
  expect(owners.counts()).toEqual([{ tenant: 'a', name: '0@svc@f', instances: 2, ready: 1 }]);
  await vi.waitFor(() =>
    expect(eventsOf(log)).toEqual([
      expect.objectContaining({ type: 'created', instance_id: '2' }),
      expect.objectContaining({ type: 'scaled', instances: 2, ready: 1 }),
    ]),
  );
});

test('events truncate texts of a sandbox to 512 characters, and name the agent', () => {
  const log = new EventLog();
  const owners = new OwnerEvents(log);
  owners.instance({ ...of('failed', '1', 'agent'), reason: 'x'.repeat(100_000) });
  owners.job({ tenant: 'a', id: 'j', status: 'FAILED', message: 'y'.repeat(100_000), attempt: 1 });
  const [failed, job] = eventsOf(log);
  expect(failed).toMatchObject({ type: 'failed', owner: 'agent', namespace: 'n', name: 'x', instance_id: '1' });
  expect(String(failed?.reason)).toHaveLength(512);
  expect(String(job?.message)).toHaveLength(512);
});

test('an alarm that is given up is an event with its agent, its name and a short reason', () => {
  const log = new EventLog();
  const owners = new OwnerEvents(log);
  const about = { namespace: 'n', name: 'x', alarm: 'remind' };
  owners.alarmFailed({ tenant: 'a', agentId: '1', ...about, reason: 'x'.repeat(100_000) });
  expect(eventsOf(log)).toEqual([
    {
      ...{ type: 'alarm_failed', at: expect.any(String), owner: 'agent', instance_id: '1', ...about },
      reason: expect.stringMatching(/^x{511}…$/),
    },
  ]);
});
