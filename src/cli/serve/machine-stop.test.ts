import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import type { MachineProcess } from '../../sandbox/host/machine-sandboxes.ts';
import type { Io } from '../shared/io.ts';
import { type Machine, stopAll } from './machine-stop.ts';

const of = (pid: number, kind: MachineProcess['kind'], dataDir: string | null, isLost = false): MachineProcess => ({
  ...{ pid, kind, dataDir, isLost },
  instanceId: kind === 'sandbox' ? `i-${pid}` : '',
});

function ioOf() {
  let written = '';
  const output = {
    write(text: string | Uint8Array) {
      written += String(text);
      return true;
    },
    drained: async () => {},
    isTerminal: false,
    columns: 80,
  };
  const io: Io = {
    ...{ environment: {}, out: output, err: output, stdin: Readable.from([]) },
    signal: new AbortController().signal,
  };
  return { io, out: () => written };
}

/**
 * Creates a machine whose processes end at the first signal, as a zygote does when its sandboxes have ended.
 */
function machineOf(all: readonly MachineProcess[], refused: readonly number[] = []) {
  const gone = new Set<number>();
  const signals: string[] = [];
  const removed: string[] = [];
  const thawed: number[] = [];
  const machine: Machine = {
    find: async () => all.filter(({ pid }) => !gone.has(pid)),
    tree: async pid => [pid + 1000, pid],
    thaw: async pid => void thawed.push(pid),
    signal(pid, signal) {
      signals.push(`${signal} ${pid}`);
      if (refused.includes(pid)) throw Object.assign(new Error('not allowed'), { code: 'EPERM' });
      gone.add(pid);
    },
    containers: async () => ({
      containers: ['c-1'].map(id => ({
        ...{ id, instanceId: 'i', isLost: false },
        remove: async () => void removed.push(id),
      })),
      close: () => undefined,
    }),
  };
  return { machine, signals, removed, thawed };
}

test('stopAll ends services first, then sandboxes with their children, and prints the numbers', async () => {
  const lost = [of(3, 'zygote', '/b', true), of(4, 'sandbox', '/b', true), of(5, 'sandbox', '/b', true)];
  const all = [of(2, 'sandbox', '/a'), of(1, 'service', '/a'), ...lost];
  const { machine, signals, removed, thawed } = machineOf(all);
  const { io, out } = ioOf();
  expect(await stopAll(io, machine)).toBe(0);
  expect(thawed.toSorted()).toEqual([2, 4, 5]);
  expect(out()).toBe('/a: ended 1 service and 1 sandbox\n/b (removed): ended 2 sandboxes\nended 1 container\n');
  const [first, ...others] = signals;
  expect(first).toBe('SIGTERM 1');
  expect(others.toSorted()).toEqual(
    ['SIGTERM 3', ...[2, 4, 5].flatMap(pid => [`SIGKILL ${pid}`, `SIGKILL ${pid + 1000}`])].toSorted(),
  );
  expect(removed).toEqual(['c-1']);
});

test('stopAll fails with the id of a process that belongs to another user, and ends the others', async () => {
  const { machine } = machineOf([of(1, 'service', '/a'), of(2, 'sandbox', '/b')], [1]);
  const { io, out } = ioOf();
  await expect(stopAll(io, machine)).rejects.toThrow('process 1 could not be ended: EPERM');
  expect(out()).toBe('/b: ended 1 sandbox\nended 1 container\n');
});

test('stopAll prints that nothing was ended when no process of rookery runs', async () => {
  const { io, out } = ioOf();
  const machine: Machine = { ...machineOf([]).machine, containers: async () => ({ containers: [], close() {} }) };
  expect(await stopAll(io, machine)).toBe(0);
  expect(out()).toBe('nothing of rookery was ended\n');
});
