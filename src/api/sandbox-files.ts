import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import type { CodePackages } from '../code/code-packages.ts';
import type { SingleFiles } from '../code/single-file.ts';
import { failedPrecondition } from '../core/error.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import { collectFiles, FILES_NAME } from '../templates/built.ts';

/** Where files of sandboxes are stored. */
export interface SandboxFilesOptions {
  readonly files: SingleFiles;
  readonly packages: Pick<CodePackages, 'maxBytes'>;
}

/** Most bytes of files for each byte of the largest package: packages are packed. */
const MAX_RATIO = 4;

/** Stores the present files of a sandbox. Returns their package. */
export async function storeSandboxFiles(
  { files, packages }: SandboxFilesOptions,
  tenant: string,
  access: SandboxAccess,
  signal: AbortSignal,
): Promise<string> {
  const path = files.newPath();
  const most = packages.maxBytes * MAX_RATIO;
  try {
    const file = createWriteStream(path, { flags: 'wx', mode: 0o600 });
    const closed = finished(file);
    closed.catch(() => undefined);
    let bytes = 0;
    const write = async (data: Buffer) => {
      bytes += data.length;
      if (bytes > most) throw failedPrecondition(`the files of the sandbox have more than ${most} bytes`);
      await new Promise<void>((resolve, reject) => file.write(data, error => (error ? reject(error) : resolve())));
    };
    try {
      await collectFiles(access, write, signal);
    } finally {
      file.end();
    }
    await closed;
    return await files.put(tenant, FILES_NAME, path);
  } finally {
    await rm(path, { force: true });
  }
}
