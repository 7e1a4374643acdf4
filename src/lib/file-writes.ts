import { createWriteStream, type WriteStream } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { execFile } from './child-process.ts';

const FILE_SYSTEM_MS = 300_000;

/** Flushes a directory, so that created, renamed and removed entries survive a power cut. */
export async function flushDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  await directory.sync().finally(() => directory.close());
}

/**
 * Flushes the file system of `path`, so that everything below it survives a power cut. One wait serves any
 * number of files, and no file is opened: some may be pipes or belong to other users. Does nothing on a
 * machine without `sync`; there the kernel writes later.
 */
export async function flushFileSystem(path: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const env = { PATH: '/usr/bin:/bin', LC_ALL: 'C' };
    execFile('sync', ['-f', '--', path], { timeout: FILE_SYSTEM_MS, env }, error =>
      error && error.code !== 'ENOENT' ? reject(error) : resolve(),
    );
  });
}

type FileOptions = Exclude<Parameters<typeof createWriteStream>[1], string | undefined>;

/**
 * Runs `pipeline` into a file and settles after the file is closed, also on failure. Otherwise a pending open
 * could create the file after its caller has removed it.
 */
export async function streamToFile(
  streams: readonly [Readable, ...Transform[]],
  path: string,
  options: FileOptions,
): Promise<void> {
  const file = createWriteStream(path, options);
  const closed = closeOf(file);
  try {
    await pipeline([...streams, file]);
  } finally {
    await closed;
  }
}

function closeOf(file: WriteStream): Promise<void> {
  return new Promise(resolve => {
    file.once('close', resolve);
  });
}
