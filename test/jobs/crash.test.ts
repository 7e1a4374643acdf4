import { expect, test } from 'vitest';
import { crash } from './crash.ts';

test('jobs run exactly once and end rightly while the server is killed again and again', {
  timeout: 240_000,
}, async () => {
  expect(await crash({ jobs: 60, kills: 8 })).toEqual([]);
});
