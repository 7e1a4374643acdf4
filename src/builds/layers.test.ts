import { existsSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { Removals } from '../lib/removals.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import { Layers, type LayersOptions } from './layers.ts';

const KEPT_MS = 3_600_000;
let root: string | undefined;
afterEach(() => {
  if (root !== undefined) rmSync(root, { recursive: true });
});

/** Makes layers of 1 MiB, each last used the given number of hours ago. */
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
  const layers = new Layers({
    disk: new TenantDisk(Number.MAX_SAFE_INTEGER),
    ...options,
    directory,
    removals,
    keepMs: KEPT_MS,
  } as LayersOptions);
  return { layers, left: () => Object.keys(hours).filter(key => existsSync(join(directory, key))) };
}

test('collect removes a layer that has been unused for too long, and keeps layers in use', async () => {
  const { layers, left } = layersOf({ old: 2, used: 2, fresh: 0 }, { maxUnusedBytes: Number.MAX_SAFE_INTEGER });
  layers.protect('used');
  layers.protect('used');
  layers.release('used');
  await layers.collect();
  expect(left()).toEqual(['used', 'fresh']);
  layers.release('used');
  await layers.collect();
  expect(left()).toEqual(['fresh']);
});

test('collect removes the oldest unused layers when all unused layers exceed their limit', async () => {
  const { layers, left } = layersOf(
    { oldest: 0.9, older: 0.5, newest: 0.1, used: 0.8 },
    { maxUnusedBytes: 2.5 * 1024 * 1024 },
  );
  layers.protect('used');
  await layers.collect();
  expect(left()).toEqual(['older', 'newest', 'used']);
});

test('a call of has counts as a use of the layer', async () => {
  const { layers, left } = layersOf({ asked: 2, other: 2 }, { maxUnusedBytes: Number.MAX_SAFE_INTEGER });
  expect(await layers.has('asked')).toBe(true);
  expect(await layers.has('none')).toBe(false);
  await layers.collect();
  expect(left()).toEqual(['asked']);
});

test('isKept does not count as a use of the layer', async () => {
  const { layers, left } = layersOf({ seen: 2 }, { maxUnusedBytes: Number.MAX_SAFE_INTEGER });
  expect(await layers.isKept('seen')).toBe(true);
  expect(await layers.isKept('none')).toBe(false);
  await layers.collect();
  expect(left()).toEqual([]);
});

test('discard removes obsolete layers and returns the keys of obsolete layers in use', async () => {
  const { layers, left } = layersOf({ old: 0, used: 0, other: 0 });
  layers.protect('used');
  const isObsolete = async (path: string) => !path.endsWith('other');
  expect(await layers.discard(isObsolete)).toEqual({ removed: ['old'], used: ['used'] });
  expect(left()).toEqual(['used', 'other']);
});

test('start removes half-made layers of a killed service', async () => {
  const { layers, left } = layersOf({ whole: 0, 'whole.half': 0 }, { maxUnusedBytes: Number.MAX_SAFE_INTEGER });
  await layers.start();
  expect(left()).toEqual(['whole']);
});
