import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { removalsIn } from '../../test/parts/removals.ts';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { failedPrecondition } from '../core/error.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { insertInstance } from '../storage/queries/instances.ts';
import { type DurableWrites, openDurableWrites } from '../storage/writes/durable.ts';
import { CodePackages, type CodePackagesOptions } from './code-packages.ts';

const TENANT = 'default';
let dataDir: string;
let database: Database;
let writes: DurableWrites;
const warnings: unknown[] = [];

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'rookery-code-packages-'));
  database = await openDatabase(':memory:');
  writes = await openDurableWrites(database, ':memory:');
  warnings.length = 0;
  discarded.length = 0;
});
afterEach(async () => {
  await writes.close();
  await database.destroy();
  await rm(dataDir, { recursive: true, force: true });
});

async function packages(change: Partial<CodePackagesOptions> = {}): Promise<CodePackages> {
  const made = new CodePackages({
    ...{ database, writes, dataDir, removals: removalsIn(dataDir), store: null, isShared: false },
    ...{ maxBytes: 1000, disk: new TenantDisk(2000), keepMs: 3_600_000, mayCollect: () => true },
    log: { warn: (_fields, text) => void warnings.push(text) },
    ...change,
  });
  await made.start();
  return made;
}

const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');
const discarded: string[] = [];
const unpacker = {
  unpackUpload: async () => 0,
  discard: async (_: string, sha256: string) => void discarded.push(sha256),
};
const put = (to: CodePackages, text: string) =>
  to.put(TENANT, hashOf(text), Readable.from([Buffer.from(text)]), unpacker);
const kept = () => readdir(join(dataDir, 'code/packages'));
const forgetUse = () => database.updateTable('code_packages').set({ used_at_ms: 0 }).execute();

/** Stores an agent that mounts the package. */
async function refer(sha256: string): Promise<void> {
  const spec = JSON.stringify({ mounts: [{ source: `code://${sha256}`, target: '/code', readonly: true }] });
  const agent = storedInstance({ id: 'a', owner: { kind: 'agent', key: 'a' }, tenant: TENANT, spec });
  await insertInstance(database, agent, { namespace: 'ns', name: 'agent', idempotency: undefined });
}

describe.each([
  ['a file of the only node', false],
  ['in the database that replicas share', true],
])('a code package is %s', (_title, isShared) => {
  test('a package is returned as it was uploaded, and its deletion removes its bytes', async () => {
    const made = await packages({ isShared, maxBytes: 5_000_000, disk: new TenantDisk(5_000_000) });
    const text = 'x'.repeat(2_500_000);
    await put(made, text);
    const file = join(dataDir, 'fetched');
    expect(await readFile(await made.archive(TENANT, hashOf(text), file), 'utf8')).toBe(text);
    await made.remove(TENANT, hashOf(text));
    expect(await kept()).toEqual([]);
    expect(await database.selectFrom('code_package_parts').selectAll().execute()).toEqual([]);
    await expect(made.archive(TENANT, hashOf(text), file)).rejects.toMatchObject({ code: 'failed_precondition' });
  });

  test('a package whose stored bytes changed is not used', async () => {
    const made = await packages({ isShared });
    await put(made, 'good');
    if (isShared)
      await database
        .updateTable('code_package_parts')
        .set({ content: Buffer.from('evil') })
        .execute();
    else await writeFile(join(dataDir, 'code/packages', (await kept())[0] ?? ''), 'evil');
    const fetching = made.archive(TENANT, hashOf('good'), join(dataDir, 'fetched'));
    await expect(fetching).rejects.toMatchObject({ code: 'unavailable' });
  });

  test('packages without a reference and without recent use are removed, and no others', async () => {
    const made = await packages({ isShared });
    for (const text of ['unused', 'of an agent', 'new']) await put(made, text);
    await refer(hashOf('of an agent'));
    await forgetUse();
    await made.use(TENANT, hashOf('new'), 'mount source');
    await made.collect();
    const left = (await made.list(TENANT, '', 10)).map(({ sha256 }) => sha256);
    expect(left.sort()).toEqual([hashOf('of an agent'), hashOf('new')].sort());
    expect(warnings).toEqual([]);
    await expect(made.remove(TENANT, hashOf('of an agent'))).rejects.toMatchObject({
      code: 'already_exists',
      message: expect.stringContaining('agent ns/agent refers to it'),
    });
  });
});

test('a removed package cannot be confirmed, even after a recent use', async () => {
  const made = await packages();
  await put(made, 'a');
  await made.use(TENANT, hashOf('a'), 'mount source');
  await made.confirm(TENANT, hashOf('a'));
  await made.remove(TENANT, hashOf('a'));
  await expect(made.confirm(TENANT, hashOf('a'))).rejects.toMatchObject({
    code: 'failed_precondition',
    message: `the code package does not exist: code://${hashOf('a')}`,
  });
});

test('a replica that does not clean up for all removes nothing', async () => {
  const made = await packages({ mayCollect: () => false });
  await put(made, 'unused');
  await forgetUse();
  await made.collect();
  expect(await made.find(TENANT, hashOf('unused'))).not.toBeNull();
});

test('an upload that is too large, differs from its hash, breaks off or does not unpack leaves nothing', async () => {
  const made = await packages();
  const large = 'x'.repeat(1001);
  await expect(put(made, large)).rejects.toMatchObject({ code: 'invalid_request', number: 413 });
  const other = made.put(TENANT, hashOf('one'), Readable.from(['other']), unpacker);
  await expect(other).rejects.toMatchObject({ code: 'invalid_request' });
  const broken = Readable.from(
    (async function* () {
      yield 'half';
      throw new Error('gone');
    })(),
  );
  await expect(made.put(TENANT, hashOf('half'), broken, unpacker)).rejects.toMatchObject({ code: 'unavailable' });
  const refused = made.put(TENANT, hashOf('bad'), Readable.from(['bad']), {
    ...unpacker,
    unpackUpload: async () => {
      throw failedPrecondition('the archive is refused');
    },
  });
  await expect(refused).rejects.toMatchObject({ code: 'invalid_request', message: 'the archive is refused' });
  expect(await made.list(TENANT, '', 10)).toEqual([]);
  expect([...(await kept()), ...(await readdir(join(dataDir, 'code/uploads')))]).toEqual([]);
});

test('a tenant stores no more bytes than its maximum, and other tenants are unaffected', async () => {
  const made = await packages();
  await put(made, 'a'.repeat(1000));
  await put(made, 'b'.repeat(999));
  await expect(put(made, 'cc')).rejects.toMatchObject({ code: 'resource_exhausted' });
  await expect(put(made, 'a'.repeat(1000))).resolves.toMatchObject({ bytes: 1000 });
  await made.put('other', hashOf('cc'), Readable.from(['cc']), unpacker);
});

test('a package whose unpacked bytes do not fit is refused, and its unpacked files are removed at once', async () => {
  const made = await packages();
  const unpacking = (bytes: number) => ({ ...unpacker, unpackUpload: async () => bytes });
  const upload = (text: string, bytes: number) =>
    made.put(TENANT, hashOf(text), Readable.from([text]), unpacking(bytes));
  await upload('fits', 1990);
  expect(discarded).toEqual([]);
  await expect(upload('bomb', 1990)).rejects.toMatchObject({ code: 'resource_exhausted' });
  expect(discarded).toEqual([hashOf('bomb')]);
  // A stored package keeps its unpacked bytes.
  await upload('fits', 1_000_000);
  expect(discarded).toEqual([hashOf('bomb')]);
});

test('a package that was stored without its unpacked bytes counts them once it is unpacked', async () => {
  const made = await packages();
  await put(made, 'old');
  const refused = () => expect(put(made, 'new'.repeat(300))).rejects.toMatchObject({ code: 'resource_exhausted' });
  await made.unpacked(TENANT, hashOf('old'), async () => 1500);
  await refused();
  await made.unpacked(TENANT, hashOf('old'), async () => 0);
  await refused();
  await made.unpacked(TENANT, hashOf('missing'), async () => 1500);
});

test('a package whose bytes are lost counts as missing, and an upload restores it for all references', async () => {
  const made = await packages();
  await put(made, 'a'.repeat(1000));
  await put(made, 'b'.repeat(1000));
  const lost = hashOf('a'.repeat(1000));
  await refer(lost);
  for (const blob of await kept()) await rm(join(dataDir, 'code/packages', blob));
  expect(await made.find(TENANT, lost)).toBeNull();
  const fetching = made.archive(TENANT, lost, join(dataDir, 'fetched'));
  await expect(fetching).rejects.toThrow('is not where it was stored: upload it again');
  await expect(put(made, 'a'.repeat(1000))).resolves.toMatchObject({ bytes: 1000 });
  expect(await readFile(await made.archive(TENANT, lost, join(dataDir, 'fetched')), 'utf8')).toBe('a'.repeat(1000));
  expect(await kept()).toHaveLength(1);
  expect(await made.list(TENANT, '', 10)).toHaveLength(2);
});

test.each([false, true])(
  'concurrent uploads share the limit of their tenant (bytes in the shared database: %s)',
  async isShared => {
    const made = await packages({ isShared });
    const uploads = Array.from({ length: 5 }, (_, at) => put(made, String(at).repeat(900)));
    const results = await Promise.allSettled(uploads);
    const refused = results.flatMap(result => (result.status === 'rejected' ? [result.reason] : []));
    expect(refused).toEqual(Array(3).fill(expect.objectContaining({ code: 'resource_exhausted' })));
    expect(await made.list(TENANT, '', 10)).toHaveLength(2);
    expect(await kept()).toHaveLength(isShared ? 0 : 2);
  },
);

test('concurrent uploads of the same content keep one package', async () => {
  const made = await packages();
  await Promise.all(Array.from({ length: 8 }, () => put(made, 'the same')));
  expect(await kept()).toHaveLength(1);
  expect(await made.list(TENANT, '', 10)).toHaveLength(1);
});
