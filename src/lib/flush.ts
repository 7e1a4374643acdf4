import { open } from 'node:fs/promises';
import { execFile } from './child-process.ts';

const FILE_SYSTEM_MS = 300_000;

/** What was made, renamed or removed in this directory survives a power cut. */
export async function flushDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  await directory.sync().finally(() => directory.close());
}

/**
 * Everything below it, and on its file system, survives a power cut. One wait, however many files there are; and none of them is opened, which
 * may be pipes or somebody else's. Where the machine has no `sync`, the kernel writes it when it does.
 */
export async function flushFileSystem(path: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const env = { PATH: '/usr/bin:/bin', LC_ALL: 'C' };
    execFile('sync', ['-f', '--', path], { timeout: FILE_SYSTEM_MS, env }, error =>
      error && error.code !== 'ENOENT' ? reject(error) : resolve(),
    );
  });
}
