import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { lostProcesses } from '../lost-sandboxes.ts';
import { findProcesses, treeOf } from './machine-sandboxes.ts';

let proc: string;
beforeEach(() => {
  proc = mkdtempSync(join(tmpdir(), 'rookery-proc-'));
});
afterEach(() => rmSync(proc, { recursive: true }));

function add(pid: number, parent: number, argv: readonly string[], held?: string, state = 'S'): void {
  const directory = join(proc, String(pid));
  mkdirSync(join(directory, 'fd'), { recursive: true });
  writeFileSync(join(directory, 'stat'), `${pid} (a ) b) ${state} ${parent} 0 0`);
  writeFileSync(join(directory, 'cmdline'), argv.map(word => `${word}\0`).join(''));
  symlinkSync('/dev/null', join(directory, 'fd', '0'));
  if (held !== undefined) symlinkSync(held, join(directory, 'fd', '9'));
}

function addData(first: number, held: string): void {
  add(first, 1, ['rookery: zygote py3.11-a          '], held);
  add(first + 1, first, ['rookery: fork server py3.11-a']);
  add(first + 2, first + 1, ['rookery: init i-1      ']);
  add(first + 3, first + 2, ['rookery: init i-1']);
  add(first + 4, first + 3, ['rookery: init of nobody'], '/forged/run');
}

test('findProcesses finds services and sandboxes with their data directories', async () => {
  addData(10, '/data/run');
  add(20, 1, ['/usr/bin/node', '/usr/bin/rookery', 'serve', '--data-dir', '/data'], '/data/lock');
  add(21, 1, ['/usr/bin/node', '/srv/main.js', 'serve-files']);
  add(22, 1, ['/usr/bin/python3', 'rookery', 'serve']);
  add(30, 1, ['rookery: supervised i-2'], '/other/run/instances (deleted)');
  add(40, 1, ['rookery: init i-3']);
  add(41, 1, ['rookery: zygote py3.11-z'], undefined, 'Z');
  expect(await findProcesses(proc)).toEqual([
    { pid: 10, kind: 'zygote', instanceId: '', dataDir: '/data', isLost: false },
    { pid: 12, kind: 'sandbox', instanceId: 'i-1', dataDir: '/data', isLost: false },
    { pid: 20, kind: 'service', instanceId: '', dataDir: '/data', isLost: false },
    { pid: 30, kind: 'supervised', instanceId: 'i-2', dataDir: '/other', isLost: true },
    { pid: 40, kind: 'sandbox', instanceId: 'i-3', dataDir: null, isLost: false },
  ]);
  expect(await treeOf(12, proc)).toEqual([14, 13, 12]);
});

test('lostProcesses names the sandboxes whose data directory was removed', async () => {
  addData(10, '/data/run (deleted)');
  addData(20, '/kept/run');
  expect(await lostProcesses(proc)).toEqual(['sandbox i-1 (process 12) of /data, which was removed']);
});
