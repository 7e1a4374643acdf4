import { expect, test } from 'vitest';
import { Ledger } from '../instances/ledger.ts';
import { TenantBudget } from '../lib/budgets.ts';
import { AgentPromises } from './agent-promises.ts';
import { AgentTable } from './agent-table.ts';

const PROCESSES = 10;
const sandbox = (epoch: number, id = 'a') => ({ id, epoch, cpuMillis: 1000, memoryMb: 128 });

/** Reservations over a ledger with capacity for one agent. */
function one() {
  const ledger = new Ledger({
    machine: { cpuMillis: 1000, memoryMb: 128, processes: PROCESSES },
    overcommit: { cpu: 1, memory: 1, processes: 1 },
    openCallBytes: new TenantBudget(1024),
  });
  const promises = new AgentPromises(new AgentTable(), ledger, PROCESSES);
  return { ledger, promises, held: () => ledger.promised.by.agent };
}
const ALL = { cpuMillis: 1000, memoryMb: 128, processes: PROCESSES };
const NONE = { cpuMillis: 0, memoryMb: 0, processes: 0 };

test('an agent reserves capacity once even when two of its sandboxes reserve', () => {
  const { promises, held } = one();
  promises.take(sandbox(1));
  promises.take(sandbox(2));
  expect(held()).toEqual(ALL);
  promises.give(sandbox(2));
  promises.give(sandbox(2));
  expect(held()).toEqual(NONE);
});

test('the reservation of an agent does not block its next sandbox, but blocks every other agent', () => {
  const { promises } = one();
  expect(promises.refusal(sandbox(1))).toBeUndefined();
  promises.take(sandbox(1));
  expect(promises.refusal(sandbox(2))).toBeUndefined();
  expect(promises.refusal(sandbox(1, 'b'))).toMatchObject({ code: 'resource_exhausted' });
});

test('a transferred reservation is released by the new sandbox, not by the previous one', () => {
  const { promises, held } = one();
  promises.take(sandbox(1));
  promises.passOn(sandbox(2));
  promises.give(sandbox(1));
  expect(held()).toEqual(ALL);
  promises.give(sandbox(2));
  expect(held()).toEqual(NONE);
});

test('a released reservation cannot be transferred', () => {
  const { ledger, promises, held } = one();
  promises.take(sandbox(1));
  promises.give(sandbox(1));
  promises.passOn(sandbox(2));
  expect(held()).toEqual(NONE);
  ledger.take('function', ALL);
  expect(promises.refusal(sandbox(2))).toMatchObject({ code: 'resource_exhausted' });
});
