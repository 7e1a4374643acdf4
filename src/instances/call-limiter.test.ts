import { expect, test } from 'vitest';
import { TenantBudget } from '../lib/budgets.ts';
import { CallLimiter } from './call-limiter.ts';

const limiter = (maxWaitingCalls: number, bytes = new TenantBudget(1)) => new CallLimiter({ maxWaitingCalls, bytes });

test('the limiter accepts a call while the waiting bound and the open-call bytes have capacity', () => {
  const calls = limiter(2, new TenantBudget(100));
  expect(calls.refusal('t', 1, 0, 100)).toBeUndefined();
  expect(calls.refusal('t', 2, 0, 1)).toMatchObject({ message: 'too many calls are waiting', retryAfterSeconds: 1 });
  const full = { number: 150510, message: 'the memory for open calls is full', retryAfterSeconds: 1 };
  expect(calls.refusal('t', 0, 0, 101)).toMatchObject(full);
  expect(calls.refusal('t', 0, 60, 41)).toMatchObject(full);
  calls.enter('t', 60);
  expect(calls.refusal('t', 0, 0, 40)).toBeUndefined();
  expect(calls.refusal('t', 0, 0, 41)).toMatchObject(full);
  calls.release('t', 60);
  expect(calls.refusal('t', 0, 0, 100)).toBeUndefined();
});

test('limiters share one byte budget with calls that wait outside of a limiter', () => {
  const bytes = new TenantBudget(100);
  const [agents, functions] = [limiter(1, bytes), limiter(1, bytes)];
  agents.enter('t', 40);
  bytes.acquire('t', 40);
  expect(functions.refusal('t', 0, 0, 20)).toBeUndefined();
  expect(functions.refusal('t', 0, 0, 21)).toMatchObject({ number: 150510 });
  agents.release('t', 40);
  expect(functions.refusal('t', 0, 0, 60)).toBeUndefined();
});

test('the limiter accepts a call when an idle agent reports a negative number of waiting calls', () => {
  expect(limiter(0).refusal('t', -1, 0, 0)).toBeUndefined();
});

test('idle resolves when the last open call ends, or immediately when no call is open', async () => {
  const calls = limiter(1);
  await calls.idle(1000);
  calls.enter('t', 0);
  calls.enter('t', 0);
  let isIdle = false;
  const idle = calls.idle(60_000).then(() => {
    isIdle = true;
  });
  calls.release('t', 0);
  await Promise.resolve();
  expect(isIdle).toBe(false);
  calls.release('t', 0);
  await idle;
  expect(calls.openCalls).toBe(0);
});

test('idle resolves when its timeout expires although a call is still open', async () => {
  const calls = limiter(1);
  calls.enter('t', 0);
  await calls.idle(10);
  await calls.idle(0);
  expect(calls.openCalls).toBe(1);
});
