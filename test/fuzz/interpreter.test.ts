import { expect, test } from 'vitest';
import { fuzzInterpreter } from './interpreter.ts';

test('no request to a code interpreter hangs, escapes or ends its server', async () => {
  const { iterations, faults, counts } = await fuzzInterpreter({ seed: 7, maxIterations: 300, maxSeconds: 15 });
  expect(faults).toEqual([]);
  expect(iterations).toBeGreaterThan(0);
  expect(counts.answers).toBeGreaterThan(0);
}, 120_000);
