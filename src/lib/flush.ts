import { open } from 'node:fs/promises';
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
