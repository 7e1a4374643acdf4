import { expect, test } from 'vitest';
import { run } from './command.ts';

test('a program that runs longer than it may is ended, and what it has said is there', async () => {
  const { code, output } = await run('sh', ['-c', 'echo begun; exec sleep 600'], { capture: true, seconds: 1 });
  expect({ code, output }).toEqual({ code: 128, output: 'begun\n' });
});
