import { mkdtemp, readdir, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removalsIn } from '../../test/parts/removals.ts';
import { Packages } from './packages.ts';

let dataDir: string;
let packages: Packages;

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'rookery-packages-'));
  packages = new Packages({
    dataDir,
    removals: removalsIn(dataDir),
    maxBytes: 100,
    keepMs: 60_000,
    maxPackagesPerTenant: 2,
    node: { id: 'n', cluster: null },
    places: null,
  });
  await packages.start();
});

afterEach(() => rm(dataDir, { recursive: true, force: true }));

const left = async () => (await readdir(join(dataDir, 'packages', '.uploads'))).length;

test('a package that was stored can be read, by its tenant only', async () => {
  await packages.write('a', 'x.zip', Readable.from([Buffer.from('one'), Buffer.from('two')]));
  expect(await text(await packages.read('a', 'x.zip'))).toBe('onetwo');
  expect(await packages.find('b', 'x.zip')).toBeNull();
  await expect(packages.read('b', 'x.zip')).rejects.toThrow('Package gcs://x.zip does not exist');
});

test('one that is too large, and one that breaks off, leave nothing', async () => {
  await expect(packages.write('a', 'x', Readable.from([Buffer.alloc(101)]))).rejects.toMatchObject({ number: 413 });
  const broken = Readable.from(
    (async function* () {
      yield 'half';
      throw new Error('gone');
    })(),
  );
  await expect(packages.write('a', 'x', broken)).rejects.toMatchObject({ code: 'unavailable' });
  expect(await packages.find('a', 'x')).toBeNull();
  expect(await left()).toBe(0);
});

test('a name is a name and not a path', async () => {
  for (const name of ['../x', 'a/b', '', '.hidden', 'x'.repeat(300)]) {
    await expect(packages.write('a', name, Readable.from([]))).rejects.toMatchObject({ code: 'invalid_request' });
  }
});

test('only what nobody needs and nobody asked for lately is removed', async () => {
  for (const name of ['needed', 'old']) await packages.write('a', name, Readable.from(['x']));
  const old = new Date(Date.now() - 120_000);
  for (const name of ['needed', 'old']) await utimes(join(dataDir, 'packages', 'a', name), old, old);
  await packages.collect(key => key === 'a/needed');
  expect(await readdir(join(dataDir, 'packages', 'a'))).toEqual(['needed']);
  await packages.find('a', 'needed');
  await packages.collect(() => false);
  expect(await readdir(join(dataDir, 'packages', 'a'))).toEqual(['needed']);
});

test('a tenant has no more packages than it may', async () => {
  for (const name of ['one', 'two']) await packages.write('a', name, Readable.from(['x']));
  await expect(packages.write('a', 'three', Readable.from(['x']))).rejects.toMatchObject({
    code: 'resource_exhausted',
  });
});
