import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import tar from 'tar-stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { removalsIn } from '../../test/parts/removals.ts';
import { type S3TestServer, startS3Server } from '../../test/parts/s3.ts';
import { describeWith } from '../../test/probe.ts';
import { CODE_TARGET } from '../core/code-package.ts';
import { PartAway } from '../core/error.ts';
import type { HostPathPolicy } from '../core/host-path.ts';
import type { Removals } from '../lib/removals.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import { CodeStore } from './code-store.ts';
import type { S3Object, S3Settings } from './s3-source.ts';

const NO_S3: S3Settings = {
  endpoint: '',
  region: 'us-east-1',
  accessKeyId: '',
  secretAccessKey: '',
  allowedEndpoints: [],
};
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-code-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

function store(
  s3: S3Settings = NO_S3,
  maxCacheBytes = 1_000_000,
  policy: HostPathPolicy = { closed: [join(directory, 'data')], allow: null },
  removals: Removals = removalsIn(join(directory, 'data')),
  bootId: string | null = 'boot-1',
): CodeStore {
  return new CodeStore({
    disk: new TenantDisk(Number.MAX_SAFE_INTEGER),
    dataDir: join(directory, 'data'),
    bootId,
    policy,
    removals,
    s3,
    maxCacheBytes,
    maxArchiveBytes: 1_000_000,
    maxUnpackedBytes: 1_000_000,
    maxEntries: 100,
  });
}

async function codeDir(): Promise<string> {
  const path = join(directory, 'code');
  await mkdir(path);
  await writeFile(join(path, 'main.py'), 'one');
  return path;
}

describe('code on this host', () => {
  it('storage type local mounts the directory itself read-only', async () => {
    const path = await codeDir();
    expect(await store().place({ storage: 'local', path }, 'i', 't')).toEqual({
      codePath: CODE_TARGET,
      mount: { source: path, target: CODE_TARGET, readonly: true },
      ours: false,
    });
  });

  it('storage type copy gives each instance a writable copy, which is removed with the instance', async () => {
    const path = await codeDir();
    const code = store();
    const { mount, ours } = await code.place({ storage: 'copy', path }, 'i', 't');
    expect({ readonly: mount?.readonly, ours }).toEqual({ readonly: false, ours: true });
    await writeFile(join(mount?.source ?? '', 'main.py'), 'two');
    expect(await readFile(join(path, 'main.py'), 'utf8')).toBe('one');
    await code.release('i');
    await expect(access(mount?.source ?? '')).rejects.toThrow();
  });

  it('code at a path of a function’s own mount, or of the image, is not mounted', async () => {
    const inside = { codePath: '/srv/code', mount: null, ours: false };
    expect(await store().place({ storage: 'inside', path: '/srv/code' }, 'i', 't')).toEqual(inside);
    const path = join(directory, 'in-image');
    expect(await store().place({ storage: 'local', path, orInImage: true }, 'i', 't')).toEqual({
      ...inside,
      codePath: path,
    });
    await mkdir(path);
    const { codePath, mount } = await store().place({ storage: 'local', path, orInImage: true }, 'i', 't');
    expect({ codePath, source: mount?.source }).toEqual({ codePath: CODE_TARGET, source: path });
  });

  it('a missing code directory is refused with its path', async () => {
    const path = join(directory, 'nowhere');
    for (const storage of ['local', 'copy'] as const) {
      await expect(store().place({ storage, path }, 'i', 't')).rejects.toThrow(
        `the code directory does not exist: ${path}`,
      );
    }
  });

  it.each(['local', 'copy'] as const)('storage type %s follows the rule for host paths', async storage => {
    const path = await codeDir();
    const packages = join(directory, 'data', 'packages', 'other');
    await mkdir(packages, { recursive: true });
    await symlink(packages, join(path, 'link'));
    await symlink('/etc', join(directory, 'etc'));
    const placing = (from: string, allow: string[] | null = null) =>
      store(NO_S3, 0, { closed: [join(directory, 'data')], allow }).place({ storage, path: from }, 'i', 't');
    for (const closed of ['/etc', '/', '/proc/1', join(directory, 'data'), packages, join(path, 'link'), directory]) {
      await expect(placing(closed)).rejects.toMatchObject({
        code: 'failed_precondition',
        message: `unsafe code path: ${closed}`,
      });
    }
    await expect(placing(join(directory, 'etc'))).rejects.toThrow(/^unsafe code path: /);
    await expect(placing(path, [join(directory, 'elsewhere')])).rejects.toThrow(
      `unsafe code path: ${path} (mounts.allow does not name it)`,
    );
    await expect(placing(join(path, 'main.py'))).rejects.toThrow('the code directory does not exist: ');
    await expect(placing('code')).rejects.toThrow('the code directory does not exist: code');
    expect(await placing(path, [directory])).toMatchObject({ mount: { target: CODE_TARGET } });
    // A link in the code is copied as a link, which has no target in a sandbox.
    if (storage === 'copy') expect(await readlink(join(directory, 'data/code/copies/i/link'))).toBe(packages);
  });

  it('a failed copy leaves no files, and its reason names no path of the service', async () => {
    const path = await codeDir();
    execFileSync('mkfifo', [join(path, 'pipe')]);
    await expect(store().place({ storage: 'copy', path }, 'i', 't')).rejects.toThrow(
      `the code in ${path} could not be copied: "pipe" is neither a file nor a directory nor a link`,
    );
    expect(await readdir(join(directory, 'data/code/copies'))).toEqual([]);
  });

  it('a sweep removes copies of instances that no longer exist', async () => {
    const path = await codeDir();
    const code = store();
    const kept = await code.place({ storage: 'copy', path }, 'kept', 't');
    const lost = await code.place({ storage: 'copy', path }, 'lost', 't');
    await code.sweep(new Set(['kept']));
    await access(kept.mount?.source ?? '');
    await expect(access(lost.mount?.source ?? '')).rejects.toThrow();
  });
});

it.each([
  ['http://169.254.169.254/latest', 'http://169.254.169.254'],
  ['http://127.0.0.1:1/', 'http://127.0.0.1:1'],
  ['https://store.example.com@169.254.169.254/', 'https://169.254.169.254'],
  ['http://store.example.com', 'http://store.example.com'],
  ['https://store.example.com:444', 'https://store.example.com:444'],
])('an object store at %s that no setting names is not contacted', async (bucketUrl, origin) => {
  const settings = { ...NO_S3, endpoint: 'https://store.example.com' };
  const object = { bucketId: 'b', objectId: 'o', bucketUrl, token: '', sha512: '' };
  await expect(store(settings).place({ storage: 's3', object, revision: '1' }, 'i', 't')).rejects.toThrow(
    `bucketUrl ${origin} is not one of s3.endpoint and s3.allowedEndpoints`,
  );
});

describe('layers', () => {
  /** Makes an archive for each package, which has one file per name. Returns a store that reads them. */
  async function storeOf(packages: Readonly<Record<string, readonly string[]>>, disk: TenantDisk): Promise<CodeStore> {
    for (const [sha256, names] of Object.entries(packages)) {
      const pack = tar.pack();
      for (const name of names) pack.entry({ name }, sha256);
      pack.finalize();
      const chunks: Buffer[] = [];
      for await (const chunk of pack) chunks.push(chunk as Buffer);
      await writeFile(join(directory, sha256), gzipSync(Buffer.concat(chunks)));
    }
    const archives = {
      archive: async (_: string, sha256: string) => join(directory, sha256),
      unpacked: async () => {},
    };
    return new CodeStore({
      ...{ disk, dataDir: join(directory, 'data'), bootId: 'boot-1', policy: { closed: [], allow: null }, s3: NO_S3 },
      ...{ removals: removalsIn(join(directory, 'data')), packages: archives, maxCacheBytes: 0 },
      ...{ maxArchiveBytes: 1_000_000, maxUnpackedBytes: 1_000_000, maxEntries: 100 },
    });
  }
  const cached = () => readdir(join(directory, 'data/code/cache'));

  it('files of a later layer replace those of an earlier one, until the last instance is released', async () => {
    const code = await storeOf(
      { one: ['python/a', 'python/b'], two: ['python/b', 'bin/c'] },
      new TenantDisk(Number.MAX_SAFE_INTEGER),
    );
    const path = await code.placeLayers('t', ['one', 'two'], 'i');
    const read = (name: string) => readFile(join(path, name), 'utf8');
    expect(await Promise.all(['python/a', 'python/b', 'bin/c'].map(read))).toEqual(['one', 'two', 'two']);
    expect(await code.placeLayers('t', ['one', 'two'], 'j')).toBe(path);
    const other = await code.placeLayers('t', ['two', 'one'], 'k');
    expect(await readFile(join(other, 'python/b'), 'utf8')).toBe('one');
    for (const id of ['i', 'k']) await code.release(id);
    expect(await read('bin/c')).toBe('two');
    await code.release('j');
    expect(await cached()).toEqual([]);
  });

  it('a single layer is the package itself, and several layers count for their tenant', async () => {
    const code = await storeOf({ one: ['a'], two: ['b'] }, new TenantDisk(1));
    expect(await readdir(await code.placeLayers('t', ['one'], 'i'))).toEqual(['a']);
    await expect(code.placeLayers('t', ['one', 'two'], 'j')).rejects.toMatchObject({ code: 'resource_exhausted' });
    for (const id of ['i', 'j']) await code.release(id);
    expect(await cached()).toEqual([]);
  });
});

it('a redirect of an object store is not followed', async () => {
  const asked: string[] = [];
  const elsewhere = createServer((request, response) => {
    asked.push(`elsewhere ${request.url}`);
    response.end();
  });
  const hostile = createServer((request, response) => {
    asked.push('hostile');
    const { port } = elsewhere.address() as AddressInfo;
    response.writeHead(request.url?.includes('301') ? 301 : 307, { location: `http://127.0.0.1:${port}/secret` }).end();
  });
  for (const server of [elsewhere, hostile]) await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  try {
    const endpoint = `http://127.0.0.1:${(hostile.address() as AddressInfo).port}`;
    for (const objectId of ['301', '307']) {
      const object = { bucketId: 'b', objectId, bucketUrl: '', token: 'a:b', sha512: '' };
      const placing = store({ ...NO_S3, endpoint }).place({ storage: 's3', object, revision: '1' }, 'i', 't');
      await expect(placing).rejects.toThrow('could not be fetched');
    }
    expect(asked).toContain('hostile');
    expect(asked.filter(each => each !== 'hostile')).toEqual([]);
  } finally {
    for (const server of [elsewhere, hostile]) server.close();
  }
});

it('an object store that does not answer fails the placement as unavailable', async () => {
  const gone = createServer();
  await new Promise<void>(resolve => gone.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(gone.address() as AddressInfo).port}`;
  await new Promise(resolve => gone.close(resolve));
  const object = { bucketId: 'b', objectId: 'o', bucketUrl: '', token: 'a:b', sha512: '' };
  const placing = store({ ...NO_S3, endpoint }).place({ storage: 's3', object, revision: '1' }, 'i', 't');
  const failure = await placing.catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(PartAway);
  expect((failure as Error).message).toMatch(/could not be fetched: the object store does not answer: ./);
});

describeWith(['s3'], 'code in an object store', () => {
  let server: S3TestServer;
  let archive: Buffer;

  beforeAll(async () => {
    const pack = tar.pack();
    pack.entry({ name: 'main.py' }, 'print(1)');
    pack.finalize();
    const chunks: Buffer[] = [];
    for await (const chunk of pack) chunks.push(chunk as Buffer);
    archive = gzipSync(Buffer.concat(chunks));
    server = await startS3Server();
    await server.put('bucket', 'code.tgz', archive);
    await server.put('bucket', 'not-an-archive', Buffer.from('hello'));
  }, 300_000);
  afterAll(() => server?.close());

  const settings = (): S3Settings => ({
    endpoint: server.endpoint,
    region: 'us-east-1',
    accessKeyId: server.accessKeyId,
    secretAccessKey: server.secretAccessKey,
    allowedEndpoints: [],
  });
  const object = (change: Partial<S3Object> = {}): S3Object => ({
    bucketId: 'bucket',
    objectId: 'code.tgz',
    bucketUrl: '',
    token: '',
    sha512: createHash('sha512').update(archive).digest('hex'),
    ...change,
  });
  const cached = () => readdir(join(directory, 'data/code/cache')).catch(() => []);

  it('code of a revision is fetched once for all waiting instances, and shared read-only', async () => {
    const code = store(settings());
    const placed = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        code.place({ storage: 's3', object: object(), revision: '1' }, `i${index}`, 't'),
      ),
    );
    expect(new Set(placed.map(({ mount }) => mount?.source)).size).toBe(1);
    expect(placed[0]).toMatchObject({ mount: { target: CODE_TARGET, readonly: true }, ours: true });
    expect(await readFile(join(placed[0]?.mount?.source ?? '', 'main.py'), 'utf8')).toBe('print(1)');
    expect(await cached()).toHaveLength(1);
  });

  it('a new revision of code is fetched again', async () => {
    const code = store(settings());
    await code.place({ storage: 's3', object: object(), revision: '1' }, 'a', 't');
    await code.place({ storage: 's3', object: object(), revision: '2' }, 'b', 't');
    expect(await cached()).toHaveLength(2);
  });

  it('the cache removes unused entries above its limit and keeps used ones', async () => {
    const code = store(settings(), 0);
    await code.place({ storage: 's3', object: object(), revision: '1' }, 'a', 't');
    await code.place({ storage: 's3', object: object(), revision: '2' }, 'b', 't');
    await code.release('a');
    expect(await cached()).toHaveLength(1);
    await code.release('b');
    expect(await cached()).toHaveLength(0);
  });

  it.each([
    ['an object with another checksum', { sha512: 'ab'.repeat(64) }, 'registered is'],
    ['a missing object', { objectId: 'nope', sha512: '' }, 'could not be fetched'],
    [
      'an object that is not an archive',
      { objectId: 'not-an-archive', sha512: '' },
      'expected a zip or a tar.gz archive',
    ],
    ['a server that is not allowed', { bucketUrl: 'http://127.0.0.1:1' }, 'is not one of s3.endpoint'],
    ['wrong credentials of the function', { token: 'a:b' }, 'could not be fetched'],
  ])('the store refuses %s and leaves no files', async (_title, change, text) => {
    const code = store(settings());
    await expect(code.place({ storage: 's3', object: object(change), revision: '1' }, 'i', 't')).rejects.toThrow(text);
    expect(await cached()).toHaveLength(0);
    expect(await readdir(join(directory, 'data/code/work'))).toHaveLength(0);
  });
});

describe('code that instances place concurrently', () => {
  const object: S3Object = { bucketId: 'b', objectId: 'o', bucketUrl: '', token: 'a:b', sha512: '' };
  let bucket: ReturnType<typeof createServer>;
  let isThere: boolean;
  let settings: S3Settings;

  beforeEach(async () => {
    const pack = tar.pack();
    pack.entry({ name: 'main.py' }, 'print(1)');
    pack.finalize();
    const chunks: Buffer[] = [];
    for await (const chunk of pack) chunks.push(chunk as Buffer);
    const archive = gzipSync(Buffer.concat(chunks));
    isThere = true;
    bucket = createServer((_request, response) => (isThere ? response.end(archive) : response.writeHead(404).end()));
    await new Promise<void>(resolve => bucket.listen(0, '127.0.0.1', resolve));
    settings = { ...NO_S3, endpoint: `http://127.0.0.1:${(bucket.address() as AddressInfo).port}` };
  });
  afterEach(() => {
    bucket.closeAllConnections();
    bucket.close();
  });

  /** Makes a cache that keeps nothing unused, and calls `beforeRemoval` before each removal. */
  function told(beforeRemoval: (path: string) => Promise<void>): CodeStore {
    const removals = removalsIn(join(directory, 'data'));
    const remove = removals.remove.bind(removals);
    removals.remove = async path => {
      await beforeRemoval(path);
      await remove(path);
    };
    return store(settings, 0, undefined, removals);
  }
  const placeIn = (code: CodeStore, instanceId: string, revision = '1') =>
    code.place({ storage: 's3', object, revision }, instanceId, 't');
  const mainOf = ({ mount }: Awaited<ReturnType<CodeStore['place']>>) =>
    readFile(join(mount?.source ?? '', 'main.py'), 'utf8');

  it('an entry stays complete when an instance places it during its removal', async () => {
    let isPlaced = false;
    let placed: Awaited<ReturnType<CodeStore['place']>> | undefined;
    const code = told(async path => {
      if (isPlaced || path.includes('/copies/') || (await readdir(path).catch(() => []))[0] !== 'main.py') return;
      isPlaced = true;
      placed = await placeIn(code, 'second');
    });
    await placeIn(code, 'first');
    await code.release('first');
    expect(isPlaced).toBe(true);
    expect(placed && (await mainOf(placed))).toBe('print(1)');
  });

  it('an entry stays complete when an instance places it at any moment of a sweep', async () => {
    const code = told(async () => undefined);
    for (let turns = 0; turns < 40; turns++) {
      await placeIn(code, 'first');
      const released = code.release('first');
      for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
      const placed = await placeIn(code, 'second');
      await released;
      expect([turns, await mainOf(placed)]).toEqual([turns, 'print(1)']);
      await code.release('second');
    }
  });

  it('entries stay complete while many instances of several revisions place and release them', async () => {
    const code = told(async () => undefined);
    await Promise.all(
      Array.from({ length: 8 }, async (_, worker) => {
        for (let round = 0; round < 10; round++) {
          const id = `i${worker}-${round}`;
          expect(await mainOf(await placeIn(code, id, String(round % 2)))).toBe('print(1)');
          await code.release(id);
        }
      }),
    );
    expect(await readdir(join(directory, 'data/code/cache'))).toEqual([]);
    expect(await readdir(join(directory, 'data/code/work'))).toEqual([]);
  });

  it('the cache keeps nothing of a fetch that failed, so that a later fetch can be removed', async () => {
    const code = told(async () => undefined);
    isThere = false;
    await expect(placeIn(code, 'first')).rejects.toThrow('could not be fetched');
    isThere = true;
    await placeIn(code, 'second');
    await code.release('second');
    expect(await readdir(join(directory, 'data/code/cache'))).toEqual([]);
  });

  describe('code from an earlier boot of the machine', () => {
    /** Makes a large cache of a service that runs in the given boot of the machine. */
    const during = (bootId: string | null) => store(settings, undefined, undefined, undefined, bootId);
    const lose = (path: string | undefined) => writeFile(join(path ?? '', 'main.py'), '');

    it('code from an earlier boot of the machine is fetched again', async () => {
      await lose((await placeIn(during('boot-1'), 'first')).mount?.source);
      const after = during('boot-2');
      await after.sweep(new Set());
      expect(await mainOf(await placeIn(after, 'second'))).toBe('print(1)');
    });

    it('a sweep removes unused code from an earlier boot of the machine', async () => {
      const { mount } = await placeIn(during('boot-1'), 'first');
      await during('boot-2').sweep(new Set());
      await expect(access(mount?.source ?? '')).rejects.toThrow();
    });

    it('code from an earlier boot stays for the instances that mount it, and new instances get a new copy', async () => {
      const { mount } = await placeIn(during('boot-1'), 'first');
      await lose(mount?.source);
      const after = during('boot-2');
      after.adopt(mount?.source ?? '', 'first');
      await after.sweep(new Set(['first']));
      await access(mount?.source ?? '');
      expect(await mainOf(await placeIn(after, 'second'))).toBe('print(1)');
      await after.release('first');
      await expect(access(mount?.source ?? '')).rejects.toThrow();
    });

    it('an uploaded package stays while an agent holds it, whatever the boot in which it was unpacked', async () => {
      const sha256 = 'a'.repeat(64);
      await mkdir(join(directory, 'code'));
      await writeFile(join(directory, 'code/main.py'), 'print(1)');
      execFileSync('tar', ['-czf', join(directory, 'code.tgz'), '-C', join(directory, 'code'), '.']);
      await during('boot-1').unpackUpload('acme', sha256, join(directory, 'code.tgz'));
      const after = during('boot-2');
      after.registerUser('acme', sha256, 'agent');
      await after.sweep(new Set());
      expect(await readdir(join(directory, 'data/code/cache'))).toHaveLength(1);
      await after.release('agent');
      expect(await readdir(join(directory, 'data/code/cache'))).toHaveLength(0);
    });

    it('code from an earlier boot is not removed before the sweep', async () => {
      const { mount } = await placeIn(during('boot-1'), 'first');
      const after = during('boot-2');
      await after.release('another');
      await access(mount?.source ?? '');
    });

    it.each([
      ['only the service was restarted', 'boot-1', 'boot-1'],
      ['the boot of the machine is unknown', null, null],
    ])('a sweep keeps code when %s', async (_title, before, now) => {
      await placeIn(during(before), 'first');
      isThere = false;
      const after = during(now);
      await after.sweep(new Set());
      expect(await mainOf(await placeIn(after, 'second'))).toBe('print(1)');
    });
  });

  it('code stays for an adopted instance after a restart of the service', async () => {
    const before = told(async () => undefined);
    const placed = await placeIn(before, 'first');
    const after = told(async () => undefined);
    after.adopt(placed.mount?.source ?? '', 'first');
    await after.sweep(new Set(['first']));
    expect(await mainOf(placed)).toBe('print(1)');
  });
});
