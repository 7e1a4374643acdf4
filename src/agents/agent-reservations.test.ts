import { expect, test } from 'vitest';
import { Ledger } from '../instances/ledger.ts';
import { TenantBudget } from '../lib/budgets.ts';
import { AgentReservations } from './agent-reservations.ts';
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
  const reservations = new AgentReservations(new AgentTable(), { ledger, maxProcesses: PROCESSES });
  return { ledger, reservations, held: () => ledger.reservations.by.agent };
}
const ALL = { cpuMillis: 1000, memoryMb: 128, processes: PROCESSES };
const NONE = { cpuMillis: 0, memoryMb: 0, processes: 0 };

test('an agent reserves capacity once even when two of its sandboxes reserve', () => {
  const { reservations, held } = one();
  reservations.reserve(sandbox(1));
  reservations.reserve(sandbox(2));
  expect(held()).toEqual(ALL);
  reservations.release(sandbox(2));
  reservations.release(sandbox(2));
  expect(held()).toEqual(NONE);
});

test('the reservation of an agent does not block its next sandbox, but blocks every other agent', () => {
  const { reservations } = one();
  expect(reservations.refusal(sandbox(1))).toBeUndefined();
  reservations.reserve(sandbox(1));
  expect(reservations.refusal(sandbox(2))).toBeUndefined();
  expect(reservations.refusal(sandbox(1, 'b'))).toMatchObject({ code: 'resource_exhausted' });
});

test('a transferred reservation is released by the new sandbox, not by the previous one', () => {
  const { reservations, held } = one();
  reservations.reserve(sandbox(1));
  reservations.transfer(sandbox(2));
  reservations.release(sandbox(1));
  expect(held()).toEqual(ALL);
  reservations.release(sandbox(2));
  expect(held()).toEqual(NONE);
});

test('a released reservation cannot be transferred', () => {
  const { ledger, reservations, held } = one();
  reservations.reserve(sandbox(1));
  reservations.release(sandbox(1));
  reservations.transfer(sandbox(2));
  expect(held()).toEqual(NONE);
  ledger.reserve('function', ALL);
  expect(reservations.refusal(sandbox(2))).toMatchObject({ code: 'resource_exhausted' });
});
