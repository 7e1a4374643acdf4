import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { streamToFile } from './stream-to-file.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'stream-to-file-'));
});
afterEach(() => rm(directory, { recursive: true }));

test('what is streamed is in the file', async () => {
  const file = join(directory, 'a');
  await streamToFile([Readable.from(['one', ' two']), new PassThrough()], file, { flags: 'wx', mode: 0o600 });
  expect(await readFile(file, 'utf8')).toBe('one two');
});

test('who removes the file of a stream that has broken off finds all that there will be of it', async () => {
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

test('a file that cannot be made is the error', async () => {
  const file = join(directory, 'missing', 'a');
  await expect(streamToFile([Readable.from(['x'])], file, {})).rejects.toMatchObject({ code: 'ENOENT' });
});
