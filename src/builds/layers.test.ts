import { existsSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { Removals } from '../lib/removals.ts';
import { Layers, type LayersOptions } from './layers.ts';

const KEPT_MS = 3_600_000;
let root: string | undefined;
afterEach(() => {
  if (root !== undefined) rmSync(root, { recursive: true });
});

/** Layers of one MiB that were used so many hours ago. */
function layersOf(hours: Readonly<Record<string, number>>, options: Partial<LayersOptions> = {}) {
  root = mkdtempSync(join(tmpdir(), 'rookery-layers-'));
  const directory = join(root, 'layers');
  for (const [key, ago] of Object.entries(hours)) {
    mkdirSync(join(directory, key), { recursive: true });
    writeFileSync(join(directory, key, 'file'), Buffer.alloc(1024 * 1024, 1));
    const at = new Date(Date.now() - ago * KEPT_MS);
    utimesSync(join(directory, key), at, at);
  }
  const removals = new Removals({ directory: join(root, 'leftovers'), report: () => undefined });
  const layers = new Layers({ ...options, directory, removals, keepMs: KEPT_MS } as LayersOptions);
  return { layers, left: () => Object.keys(hours).filter(key => existsSync(join(directory, key))) };
}

test('one that nobody uses goes when it has not been used for long; one in use stays', async () => {
  const { layers, left } = layersOf({ old: 2, used: 2, fresh: 0 }, { maxUnusedBytes: null });
  layers.hold('used');
  layers.hold('used');
  layers.release('used');
  await layers.collect();
  expect(left()).toEqual(['used', 'fresh']);
  layers.release('used');
  await layers.collect();
  expect(left()).toEqual(['fresh']);
});

test('when those that nobody uses have too much together, the oldest go first', async () => {
  const { layers, left } = layersOf(
    { oldest: 0.9, older: 0.5, newest: 0.1, used: 0.8 },
    { maxUnusedBytes: 2.5 * 1024 * 1024 },
  );
  layers.hold('used');
  await layers.collect();
  expect(left()).toEqual(['older', 'newest', 'used']);
});

test('one that is asked for counts as used', async () => {
  const { layers, left } = layersOf({ asked: 2, other: 2 }, { maxUnusedBytes: null });
  expect(await layers.has('asked')).toBe(true);
  expect(await layers.has('none')).toBe(false);
  await layers.collect();
  expect(left()).toEqual(['asked']);
});

test('to look whether one is kept does not count as use', async () => {
  const { layers, left } = layersOf({ seen: 2 }, { maxUnusedBytes: null });
  expect(await layers.isKept('seen')).toBe(true);
  expect(await layers.isKept('none')).toBe(false);
  await layers.collect();
  expect(left()).toEqual([]);
});

test('what a killed server left half made goes at the start', async () => {
  const { layers, left } = layersOf({ whole: 0, 'whole.half': 0 }, { maxUnusedBytes: null });
  await layers.start();
  expect(left()).toEqual(['whole']);
});
