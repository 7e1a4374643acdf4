import { expect, test } from 'vitest';
import { Ledger } from '../instances/ledger.ts';
import { OpenCallBytes } from '../instances/open-call-bytes.ts';
import { AgentPromises } from './agent-promises.ts';

const PROCESSES = 10;
const sandbox = (epoch: number, id = 'a') => ({ id, epoch, cpuMillis: 1000, memoryMb: 128 });

/** Room for one agent. */
function one() {
  const ledger = new Ledger({
    machine: { cpuMillis: 1000, memoryMb: 128, processes: PROCESSES },
    overcommit: { cpu: 1, memory: 1, processes: 1 },
    openCallBytes: new OpenCallBytes(1024),
  });
  const promises = new AgentPromises(ledger, PROCESSES);
  return { ledger, promises, held: () => ledger.promised.by.agent };
}
const ALL = { cpuMillis: 1000, memoryMb: 128, processes: PROCESSES };
const NONE = { cpuMillis: 0, memoryMb: 0, processes: 0 };

test('an agent counts once, however many of its sandboxes take', () => {
  const { promises, held } = one();
  promises.take(sandbox(1));
  promises.take(sandbox(2));
  expect(held()).toEqual(ALL);
  promises.give(sandbox(2));
  promises.give(sandbox(2));
  expect(held()).toEqual(NONE);
});

test('what an agent has is no reason to refuse its next sandbox, and is one for every other agent', () => {
  const { promises } = one();
  expect(promises.refusal(sandbox(1))).toBeUndefined();
  promises.take(sandbox(1));
  expect(promises.refusal(sandbox(2))).toBeUndefined();
  expect(promises.refusal(sandbox(1, 'b'))).toMatchObject({ code: 'resource_exhausted' });
});

test('what was passed on is given back by the sandbox that has it, not by the one before', () => {
  const { promises, held } = one();
  promises.take(sandbox(1));
  promises.passOn(sandbox(2));
  promises.give(sandbox(1));
  expect(held()).toEqual(ALL);
  promises.give(sandbox(2));
  expect(held()).toEqual(NONE);
});

test('what was given back cannot be passed on', () => {
  const { ledger, promises, held } = one();
  promises.take(sandbox(1));
  promises.give(sandbox(1));
  promises.passOn(sandbox(2));
  expect(held()).toEqual(NONE);
  ledger.take('function', ALL);
  expect(promises.refusal(sandbox(2))).toMatchObject({ code: 'resource_exhausted' });
});
