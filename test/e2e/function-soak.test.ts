import { expect, it } from 'vitest';
import { soakFunctions } from '../soak/function-load.ts';

const SMALL = { functions: 10, instancesEach: 3, callers: 16, handlerMs: 80, killEveryMs: 250 };

it('functions under mixed load fail only calls on killed instances and leave no residue', async () => {
  const report = await soakFunctions({ ...SMALL, durationMs: 5_000, killServer: false });
  expect(report.faults).toEqual([]);
  expect(report.killed).toBeGreaterThan(0);
}, 120_000);

it('functions under mixed load survive kill -9 of the server, with their waiting asynchronous calls', async () => {
  const report = await soakFunctions({ ...SMALL, durationMs: 5_000, killServer: true });
  expect(report.faults).toEqual([]);
  expect(report.serverRestart?.adopted).toBeGreaterThan(0);
}, 120_000);
