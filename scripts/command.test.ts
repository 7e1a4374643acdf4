import { expect, test } from 'vitest';
import { run } from './command.ts';

test('run ends a program at its time limit and returns the output so far', async () => {
  const { code, output } = await run('sh', ['-c', 'echo begun; exec sleep 600'], { capture: true, seconds: 1 });
  expect({ code, output }).toEqual({ code: 128, output: 'begun\n' });
});
