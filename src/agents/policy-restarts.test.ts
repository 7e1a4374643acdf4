import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import type { RestartPolicy } from '../core/restart-policy.ts';
import { toRecord } from '../instances/rows.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { insertInstance, type StoredInstance } from '../storage/queries/instances.ts';
import { AgentTable } from './agent-table.ts';
import { PolicyRestarts } from './policy-restarts.ts';

const NOW_MS = 1_700_000_000_000;
const POLICY: RestartPolicy = { policy: 'on-failure', maxRestarts: 3, backoffMs: 1_000 };
const REASON = 'instance exited: exit code 3';

let database: Database;
let restarts: PolicyRestarts;
/** Ids of the restarted agents, in order. */
let restarted: string[];
let busy: string | undefined;

beforeEach(async () => {
  database = await openDatabase(':memory:');
  restarted = [];
  busy = undefined;
  restarts = new PolicyRestarts({
    table: new AgentTable(),
    database,
    nodeId: 'node',
    log: { info: () => undefined, warn: () => undefined, error: () => undefined },
    now: () => NOW_MS,
    restart: async ({ id }) => {
      restarted.push(id);
      await database.deleteFrom('instances').where('id', '=', id).execute();
    },
    isBusy: id => id === busy,
    refusal: () => undefined,
  });
});
afterEach(async () => {
  vi.useRealTimers();
  restarts.close();
  await database.destroy();
});

const agent = (changes: Partial<StoredInstance> = {}) =>
  storedInstance({
    spec: JSON.stringify({ restartPolicy: POLICY }),
    status: 'FAILED',
    startedAtMs: NOW_MS - 500,
    ...changes,
  });
/** Stores an agent whose record schedules a restart after `pauseMs`. */
async function planned(id: string, pauseMs: number): Promise<StoredInstance> {
  const stored = agent({ id });
  await insertInstance(database, stored, { namespace: 'n', name: id, idempotency: undefined });
  await change(id, { restart_at_ms: NOW_MS + pauseMs });
  return stored;
}
const change = (id: string, values: { restart_at_ms?: number; node_id?: string }) =>
  database.updateTable('instances').set(values).where('id', '=', id).execute();
const untilRestarted = (ids: readonly string[]) => vi.waitFor(() => expect(restarted).toEqual(ids));

test.each<[string, Partial<StoredInstance>, number | null, object]>([
  ['the first restart in a row', {}, 3, { restartAtMs: NOW_MS + 1_000, restartsInRow: 1 }],
  ['a further restart in a row', { restartsInRow: 2 }, null, { restartAtMs: NOW_MS + 4_000, restartsInRow: 3 }],
  [
    'the first restart after a long run',
    { restartsInRow: 2, startedAtMs: NOW_MS - 3_600_000 },
    3,
    { restartAtMs: NOW_MS + 1_000, restartsInRow: 1 },
  ],
  [
    'no restart after the last allowed one',
    { restartsInRow: 3 },
    3,
    {
      restartAtMs: 0,
      statusReason: `${REASON}; it was restarted 3 times in a row, which is as often as its restart policy allows`,
    },
  ],
  ['no restart after exit code 0', {}, 0, {}],
  ['no restart without a policy', { spec: '{}' }, 3, {}],
])('planned returns the columns to store with the exit: %s', (_, changes, exitCode, patch) => {
  expect(restarts.planned(toRecord(agent(changes)), REASON, exitCode)).toEqual(patch);
});

test('a closed PolicyRestarts still plans a restart but starts no timer', async () => {
  const stored = await planned('a', 0);
  restarts.close();
  expect(restarts.planned(toRecord(stored), REASON, 3)).toMatchObject({ restartsInRow: 1 });
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  await restarts.ended(stored);
  await restarts.resume();
  expect(vi.getTimerCount()).toBe(0);
});

test('resume schedules each stored restart once and skips busy agents', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  for (const id of ['a', 'b']) await planned(id, 1_000);
  busy = 'a';
  await restarts.resume();
  await restarts.resume();
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(1_000);
  vi.useRealTimers();
  await untilRestarted(['b']);
});

test('a restart is skipped when another node has taken over the agent', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const [taken, own] = [await planned('a', 1_000), await planned('b', 1_000)];
  await restarts.ended(taken);
  await restarts.ended(own);
  await change('a', { node_id: 'heir' });
  vi.advanceTimersByTime(1_000);
  vi.useRealTimers();
  await untilRestarted(['b']);
});
