import { expect, test } from 'vitest';
import { crash } from './crash.ts';

test('jobs run exactly once and end in the right state while the server is killed repeatedly', {
  timeout: 240_000,
}, async () => {
  expect(await crash({ jobs: 60, kills: 8 })).toEqual([]);
});
