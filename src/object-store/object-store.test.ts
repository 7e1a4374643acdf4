import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type S3TestServer, startS3Server } from '../../test/parts/s3.ts';
import { describeWith } from '../../test/probe.ts';
import { createObjectStore, OBJECT_STORE_URL, type ObjectStore } from './object-store.ts';

test('OBJECT_STORE_URL accepts a bucket with an optional prefix and nothing else', () => {
  for (const url of ['s3://bucket', 's3://bucket/', 's3://bucket/a/b', 's3://my.bucket-1/x']) {
    expect(OBJECT_STORE_URL.test(url)).toBe(true);
  }
  for (const url of ['', 's3://', 's3:///x', 's3://B/x', 'http://bucket/x', 's3://bucket/a b', 's3://bucket?x']) {
    expect(OBJECT_STORE_URL.test(url)).toBe(false);
  }
});

describeWith(['s3'], 'ObjectStore on an S3 bucket', () => {
  let server: S3TestServer;
  let directory: string;
  let store: ObjectStore;

  beforeAll(async () => {
    server = await startS3Server();
    await server.makeBucket('jobs');
    directory = await mkdtemp(join(tmpdir(), 'rookery-objects-'));
    store = createObjectStore('s3://jobs/some/prefix', { ...server, region: 'us-east-1' });
  }, 60_000);
  afterAll(async () => {
    store.close();
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });

  const file = async (content: Buffer) => {
    const path = join(directory, 'file');
    await writeFile(path, content);
    return path;
  };
  const read = async (key: string, start?: number) => {
    const content = await store.get(key, start);
    return content === null ? null : (await buffer(content)).toString();
  };

  test('get returns a stored object from any byte on, and put stores objects below the prefix', async () => {
    await store.put('a/x.txt', await file(Buffer.from('0123456789')));
    expect(await read('a/x.txt')).toBe('0123456789');
    expect(await read('a/x.txt', 7)).toBe('789');
    expect(await server.keys('jobs')).toContain('some/prefix/a/x.txt');
  });

  test('put overwrites an object and stores an empty file', async () => {
    await store.put('b', await file(Buffer.from('first')));
    await store.put('b', await file(Buffer.from('second')));
    expect(await read('b')).toBe('second');
    await store.put('empty', await file(Buffer.alloc(0)));
    expect(await read('empty')).toBe('');
  });

  test('get returns the whole content of a large file', async () => {
    const large = Buffer.alloc(20 * 1024 * 1024, 'abcdefg');
    await store.put('large', await file(large));
    const content = await store.get('large');
    expect(content !== null && (await buffer(content)).equals(large)).toBe(true);
  });

  test('put refuses a file with a wrong checksum and stores nothing', async () => {
    await expect(store.put('wrong', await file(Buffer.from('x')), '0'.repeat(64))).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    expect(await read('wrong')).toBeNull();
  });

  test('list returns keys and sizes below a prefix, and remove ignores missing keys', async () => {
    for (const name of ['l/1', 'l/2', 'm/1']) await store.put(name, await file(Buffer.from(name)));
    const listed = await store.list('l/');
    expect(listed.map(({ key, bytes }) => [key, bytes])).toEqual([
      ['l/1', 3],
      ['l/2', 3],
    ]);
    await store.remove(['l/1', 'l/2', 'l/3']);
    expect(await store.list('l/')).toEqual([]);
    expect(await read('m/1')).toBe('m/1');
    expect(await store.list('nothing/')).toEqual([]);
    expect(await store.get('nothing')).toBeNull();
  });

  test('put and get fail with failed_precondition for a missing bucket and a wrong key', async () => {
    const path = await file(Buffer.from('x'));
    const elsewhere = createObjectStore('s3://nowhere', { ...server, region: 'us-east-1' });
    await expect(elsewhere.put('x', path)).rejects.toMatchObject({ code: 'failed_precondition' });
    const stranger = createObjectStore('s3://jobs', { ...server, region: 'us-east-1', secretAccessKey: 'wrong' });
    await expect(stranger.get('m/1')).rejects.toMatchObject({ code: 'failed_precondition' });
    for (const each of [elsewhere, stranger]) each.close();
  });

  test('the store fails with unavailable while the server is down, and recovers afterwards', async () => {
    const path = await file(Buffer.from('x'));
    await server.stop();
    await expect(store.put('later', path)).rejects.toMatchObject({ code: 'unavailable' });
    await expect(store.list('')).rejects.toMatchObject({ code: 'unavailable' });
    await server.start();
    await store.put('later', path);
    expect(await read('later')).toBe('x');
  }, 60_000);
});
