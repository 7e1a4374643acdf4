import { mkdtemp, readdir, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removalsIn } from '../../test/parts/removals.ts';
import type { ServiceError } from '../core/error.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import type { ObjectStore } from '../object-store/object-store.ts';
import { openDatabase } from '../storage/database.ts';
import { openDurableWrites } from '../storage/writes/durable.ts';
import { PackagePlaces } from './package-places.ts';
import { JobPackages, type PackagesOptions } from './packages.ts';

let dataDir: string;
let packages: JobPackages;

const packagesIn = (directory: string, places: PackagesOptions['places'] = null) =>
  new JobPackages({
    dataDir: directory,
    removals: removalsIn(directory),
    maxBytes: 100,
    keepMs: 60_000,
    maxPackagesPerTenant: 2,
    disk: new TenantDisk(1000),
    node: { id: 'n', cluster: null },
    places,
  });

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'rookery-packages-'));
  packages = packagesIn(dataDir);
  await packages.start();
});

afterEach(() => rm(dataDir, { recursive: true, force: true }));

const left = async () => (await readdir(join(dataDir, 'packages', '.uploads'))).length;

test('a stored package can be read only by its tenant', async () => {
  await packages.write('a', 'x.zip', Readable.from([Buffer.from('one'), Buffer.from('two')]));
  expect(await text(await packages.read('a', 'x.zip'))).toBe('onetwo');
  expect(await packages.find('b', 'x.zip')).toBeNull();
  await expect(packages.read('b', 'x.zip')).rejects.toThrow('Package gcs://x.zip does not exist');
});

test('an upload that is too large or breaks off leaves no residue', async () => {
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

test('write rejects a package name that is a path, empty, hidden or too long', async () => {
  for (const name of ['../x', 'a/b', '', '.hidden', 'x'.repeat(300)]) {
    await expect(packages.write('a', name, Readable.from([]))).rejects.toMatchObject({ code: 'invalid_request' });
  }
});

test('collect removes only packages that are neither needed nor recently requested', async () => {
  for (const name of ['needed', 'old']) await packages.write('a', name, Readable.from(['x']));
  const old = new Date(Date.now() - 120_000);
  for (const name of ['needed', 'old']) await utimes(join(dataDir, 'packages', 'a', name), old, old);
  await packages.collect(key => key === 'a/needed');
  expect(await readdir(join(dataDir, 'packages', 'a'))).toEqual(['needed']);
  await packages.find('a', 'needed');
  await packages.collect(() => false);
  expect(await readdir(join(dataDir, 'packages', 'a'))).toEqual(['needed']);
});

test('write rejects a package above the limit of its tenant', async () => {
  for (const name of ['one', 'two']) await packages.write('a', name, Readable.from(['x']));
  await expect(packages.write('a', 'three', Readable.from(['x']))).rejects.toMatchObject({
    code: 'resource_exhausted',
  });
});

const refused = (uploads: readonly PromiseSettledResult<void>[]) =>
  uploads.flatMap(upload => (upload.status === 'rejected' ? [(upload.reason as ServiceError).code] : []));

test('parallel uploads do not exceed the package limit of a tenant', async () => {
  const upload = (name: string) => packages.write('a', name, Readable.from(['x']));
  const uploads = await Promise.allSettled(['one', 'two', 'three', 'four', 'five'].map(upload));
  expect(refused(uploads)).toEqual(Array.from({ length: 3 }, () => 'resource_exhausted'));
  expect(await readdir(join(dataDir, 'packages', 'a'))).toHaveLength(2);
  expect(await left()).toBe(0);
});

test('parallel uploads to several nodes with an object store do not exceed the package limit', async () => {
  const database = await openDatabase(':memory:');
  const writes = await openDurableWrites(database, ':memory:');
  const objects = new Set<string>();
  const store = {
    put: async (key: string) => void objects.add(key),
    remove: async (keys: readonly string[]) => keys.forEach(key => void objects.delete(key)),
  } as unknown as ObjectStore;
  try {
    const nodes = ['n', 'm', 'o'].map(id => {
      const node = { id, cluster: null };
      const places = new PackagePlaces({ database, writes, node, store, maxPackagesPerTenant: 2 });
      return packagesIn(join(dataDir, id), places);
    });
    for (const node of nodes) await node.start();
    const uploads = await Promise.allSettled(nodes.map((node, n) => node.write('a', `p${n}`, Readable.from(['x']))));
    expect(refused(uploads)).toEqual(['resource_exhausted']);
    expect(objects.size).toBe(2);
    expect(await database.selectFrom('job_packages').select('name').execute()).toHaveLength(2);
  } finally {
    await writes.close();
    await database.destroy();
  }
});
