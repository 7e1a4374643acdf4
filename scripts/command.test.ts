import { expect, test } from 'vitest';
import { run } from './command.ts';

const WAIT_FOR_EVER = 'process.stdout.write("begun"); setInterval(() => {}, 1000)';

test('a program that runs longer than it may is ended, and what it has said is there', async () => {
  const { code, output } = await run(process.execPath, ['-e', WAIT_FOR_EVER], { capture: true, seconds: 1 });
  expect(code).toBe(128);
  expect(['', 'begun']).toContain(output);
});
