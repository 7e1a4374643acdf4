import { describe, expect, test } from 'vitest';
import { JobQueue, type QueueItem, type QueueLimits, type QueueMachine } from './queue.ts';

const MACHINE: QueueMachine = { isFull: () => false, reserve: () => undefined, release: () => undefined };

const LIMITS: QueueLimits = {
  maxRunning: 4,
  maxRunningPerTenant: 3,
  cpuMillis: 4000,
  memoryMb: 1000,
  custom: { gpu: 1 },
};

function item(
  sequence: number,
  tenant = 'a',
  more: Partial<QueueItem['resources']> & { priority?: number } = {},
): QueueItem {
  const { priority = 0, ...resources } = more;
  return { sequence, tenant, priority, resources: { cpuMillis: 0, memoryMb: 0, gpus: 0, custom: {}, ...resources } };
}

function queueOf(items: readonly QueueItem[], limits: Partial<QueueLimits> = {}): JobQueue {
  const queue = new JobQueue({ ...LIMITS, ...limits }, MACHINE);
  for (const each of items) queue.add(each);
  return queue;
}

function takeAll(queue: JobQueue): number[] {
  const taken: number[] = [];
  for (let next = queue.startNext(); next; next = queue.startNext()) taken.push(next.sequence);
  return taken;
}

describe('the job queue with one tenant', () => {
  test('jobs start in the order of submission, whatever the order in which the queue got them', () => {
    expect(takeAll(queueOf([item(3), item(1), item(2)]))).toEqual([1, 2, 3]);
  });

  test('jobs with the highest priority start first', () => {
    expect(takeAll(queueOf([item(1), item(2, 'a', { priority: 5 }), item(3, 'a', { priority: 5 })]))).toEqual([
      2, 3, 1,
    ]);
  });

  test('the queue runs no more jobs of a tenant than the limit per tenant', () => {
    const queue = queueOf([item(1), item(2), item(3), item(4)]);
    expect(takeAll(queue)).toEqual([1, 2, 3]);
    queue.release(item(1));
    expect(takeAll(queue)).toEqual([4]);
  });

  test('later jobs do not overtake a job that does not fit yet', () => {
    const large = item(2, 'a', { cpuMillis: 3000 });
    const queue = queueOf([item(1, 'a', { cpuMillis: 2000 }), large, item(3, 'a', { cpuMillis: 100 })]);
    expect(takeAll(queue)).toEqual([1]);
    queue.release(item(1, 'a', { cpuMillis: 2000 }));
    expect(takeAll(queue)).toEqual([2, 3]);
  });

  test('a job that the machine can never run delays no other job and can be removed', () => {
    const impossible = item(1, 'a', { gpus: 1 });
    const queue = queueOf([impossible, item(2)]);
    expect(queue.shortage(impossible.resources)).toBe('it asks for 1 GPUs, and there are none');
    expect(takeAll(queue)).toEqual([2]);
    expect(queue.waiting).toBe(1);
    expect(queue.remove(impossible)).toBe(true);
    expect(queue.remove(impossible)).toBe(false);
  });

  test('a custom resource is allocated to one job at a time', () => {
    const queue = queueOf([item(1, 'a', { custom: { gpu: 1 } }), item(2, 'a', { custom: { gpu: 1 } })]);
    expect(takeAll(queue)).toEqual([1]);
    queue.release(item(1, 'a', { custom: { gpu: 1 } }));
    expect(takeAll(queue)).toEqual([2]);
  });
});

describe('waitReason', () => {
  const waitsFor = (queue: JobQueue, sequence: number, tenant = 'a') => queue.waitReason({ tenant, sequence });

  test.each<[string, Partial<QueueItem['resources']>, string]>([
    ['processors', { cpuMillis: 2500 }, '2.5 free CPUs of the 4 for jobs'],
    ['memory', { memoryMb: 600 }, '600 MiB of free memory of the 1000 MiB for jobs'],
    ['a custom resource', { custom: { gpu: 1 } }, '1 free of the 1 of gpu'],
  ])('waitReason names %s that other jobs use', (_, resources, reason) => {
    const queue = queueOf([item(1, 'b', resources), item(2, 'a', resources), item(3)]);
    expect(queue.startNext()?.sequence).toBe(1);
    expect(waitsFor(queue, 2)).toBe(reason);
    expect(waitsFor(queue, 3)).toBe(`a job of this tenant that starts before it; the next one waits for ${reason}`);
    queue.add(item(4));
    expect(waitsFor(queue, 4)).toBe(`2 jobs of this tenant that start before it; the next one waits for ${reason}`);
  });

  test('waitReason names the room of the machine, the places of all jobs and those of the tenant', () => {
    const full = new JobQueue(LIMITS, { ...MACHINE, isFull: () => true });
    full.add(item(1));
    expect(waitsFor(full, 1)).toBe('room on the machine, which agents, functions and jobs have reserved');
    const all = queueOf([item(1, 'b'), item(2)], { maxRunning: 1 });
    expect(all.startNext()?.sequence).toBe(1);
    expect(waitsFor(all, 2)).toBe('one of the 1 places for running jobs (jobs.maxRunning)');
    const own = queueOf([item(1), item(2)], { maxRunningPerTenant: 1 });
    expect(takeAll(own)).toEqual([1]);
    expect(waitsFor(own, 2)).toBe('one of the 1 places that a tenant has for running jobs (jobs.maxRunningPerTenant)');
  });

  test('waitReason names the turn of a job that fits, and null for jobs that do not wait or can never start', () => {
    const queue = queueOf([item(1), item(2, 'b', { gpus: 1 })]);
    expect(waitsFor(queue, 1)).toBe('its turn among the jobs of other tenants');
    expect([waitsFor(queue, 2, 'b'), waitsFor(queue, 3), waitsFor(queue, 1, 'b')]).toEqual([null, null, null]);
    expect(takeAll(queue)).toEqual([1]);
    expect(waitsFor(queue, 1)).toBeNull();
  });
});

test('fractions of a custom resource are released exactly, in any order', () => {
  const part = (sequence: number, gpu: number) => item(sequence, 'a', { custom: { gpu } });
  const queue = queueOf([], { maxRunning: 20, maxRunningPerTenant: 20 });
  let sequence = 0;
  for (const amounts of [[0.1, 0.2, 0.7], [0.7, 0.1, 0.2], [0.3, 0.6, 0.1], Array.from({ length: 10 }, () => 0.1)]) {
    const parts = amounts.map(amount => part(sequence++, amount));
    for (const each of parts) queue.add(each);
    expect(takeAll(queue)).toEqual(parts.map(each => each.sequence));
    for (const each of parts) queue.release(each);
    const whole = part(sequence++, 1);
    queue.add(whole);
    expect(takeAll(queue)).toEqual([whole.sequence]);
    queue.release(whole);
  }
});

describe('the job queue with several tenants', () => {
  test('tenants share capacity evenly although one tenant queued many jobs first', () => {
    const many = Array.from({ length: 10 }, (_, index) => item(index));
    const queue = queueOf([...many, item(100, 'b'), item(101, 'b')]);
    expect(takeAll(queue)).toEqual([0, 100, 1, 101]);
  });

  test('the tenant that uses the least of its scarcest resource starts next', () => {
    const queue = queueOf([
      item(1, 'a', { memoryMb: 800 }),
      item(2, 'a'),
      item(3, 'b', { cpuMillis: 1000 }),
      item(4, 'b', { cpuMillis: 1000 }),
    ]);
    expect(takeAll(queue)).toEqual([1, 3, 4, 2]);
  });

  test('a tenant at its limit does not delay other tenants', () => {
    const queue = queueOf([item(1), item(2), item(3, 'b')], { maxRunningPerTenant: 1 });
    expect(takeAll(queue)).toEqual([1, 3]);
  });

  test('recovered running jobs count towards the limits', () => {
    const queue = queueOf([item(2)]);
    for (const sequence of [10, 11, 12, 13]) queue.occupy(item(sequence, 'b'));
    expect(takeAll(queue)).toEqual([]);
    queue.release(item(10, 'b'));
    expect(takeAll(queue)).toEqual([2]);
  });
});

test('the queue is empty when all jobs have been released', () => {
  const queue = queueOf(Array.from({ length: 50 }, (_, index) => item(index, `t${index % 7}`, { cpuMillis: 10 })));
  let done = 0;
  for (let next = queue.startNext(); next; next = queue.startNext()) {
    done += 1;
    queue.release(next);
  }
  expect({ done, waiting: queue.waiting, running: queue.running }).toEqual({ done: 50, waiting: 0, running: 0 });
});

test.each(['constructor', 'toString', '__proto__'])(
  'a job that asks for a resource named %s waits without delaying other jobs',
  name => {
    const custom = Object.fromEntries([[name, 1]]);
    const queue = queueOf([item(1, 'a', { custom }), item(2), item(3, 'b')]);
    expect(takeAll(queue)).toEqual([2, 3]);
    expect(queue.shortage(item(1, 'a', { custom }).resources)).toBe(`it asks for 1 of ${name}, and there are 0`);
  },
);
