import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { streamToFile } from './file-writes.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'stream-to-file-'));
});
afterEach(() => rm(directory, { recursive: true }));

test('streamToFile writes all streams to the file in order', async () => {
  const file = join(directory, 'a');
  await streamToFile([Readable.from(['one', ' two']), new PassThrough()], file, { flags: 'wx', mode: 0o600 });
  expect(await readFile(file, 'utf8')).toBe('one two');
});

test('streamToFile leaves no file after its stream fails and the caller removes the file', async () => {
  const failed = new Readable({
    read() {
      this.destroy(new Error('gone'));
    },
  });
  const file = join(directory, 'a');
  await expect(streamToFile([failed], file, { flags: 'wx' })).rejects.toThrow('gone');
  await rm(file, { force: true });
  expect(await readdir(directory)).toEqual([]);
});

test('streamToFile rejects with ENOENT when the file cannot be created', async () => {
  const file = join(directory, 'missing', 'a');
  await expect(streamToFile([Readable.from(['x'])], file, {})).rejects.toMatchObject({ code: 'ENOENT' });
});
