import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { currentBootId } from '../../lib/process-name.ts';
import { isAlive, killProcess, waitForEnd } from './kernel.ts';

function startTimeOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
}

test('isAlive matches a process by pid, start time and boot id', async () => {
  const own = { pid: process.pid, startTime: startTimeOf(process.pid), bootId: currentBootId() };
  expect(await isAlive(own)).toBe(true);
  expect(await isAlive({ ...own, startTime: own.startTime + 1 })).toBe(false);
  expect(await isAlive({ ...own, bootId: 'another' })).toBe(false);
  expect(await isAlive({ ...own, pid: 2 ** 30 })).toBe(false);
});

test('killProcess kills only the named process, and waitForEnd detects its end', async () => {
  const child = spawn('sleep', ['600']);
  const pid = child.pid as number;
  const name = { pid, startTime: startTimeOf(pid), bootId: currentBootId() };
  await killProcess({ ...name, startTime: name.startTime - 1 });
  expect(await isAlive(name)).toBe(true);
  expect(await waitForEnd(name, 1)).toBe(false);
  const exited = once(child, 'exit');
  await killProcess(name);
  await exited;
  expect(await waitForEnd(name, 10_000)).toBe(true);
});
