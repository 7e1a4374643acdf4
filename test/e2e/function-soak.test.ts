import { expect, it } from 'vitest';
import { soakFunctions } from '../soak/function-load.ts';

const SMALL = { functions: 10, instancesEach: 3, callers: 16, handlerMs: 80, killEveryMs: 250 };

it('functions under mixed load while instances are killed: only calls on a killed instance fail, and nothing is left', async () => {
  const report = await soakFunctions({ ...SMALL, durationMs: 5_000, killServer: false });
  expect(report.faults).toEqual([]);
  expect(report.killed).toBeGreaterThan(0);
}, 120_000);

it('kill -9 of the server in the middle: instances are adopted, waiting asynchronous calls run, nothing is left', async () => {
  const report = await soakFunctions({ ...SMALL, durationMs: 5_000, killServer: true });
  expect(report.faults).toEqual([]);
  expect(report.serverRestart?.adopted).toBeGreaterThan(0);
}, 120_000);
