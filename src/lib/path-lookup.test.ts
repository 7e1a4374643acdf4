import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createPathExists } from './path-lookup.ts';

test('createPathExists returns a check that reports the state of a path at each call', async () => {
  const exists = createPathExists(async path => existsSync(path));
  const directory = await mkdtemp(join(tmpdir(), 'rookery-exists-'));
  expect(await Promise.all([exists(directory), exists(directory), exists(join(directory, 'x'))])).toEqual([
    true,
    true,
    false,
  ]);
  await rm(directory, { recursive: true });
  expect(await exists(directory)).toBe(false);
});
