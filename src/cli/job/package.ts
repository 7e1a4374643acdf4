import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Packed } from '../../../clients/typescript/src/code-archive.ts';
import { packDirectory } from '../code/archive.ts';
import type { What } from '../code/upload.ts';
import type { Client } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printWarning, withSpinner } from '../shared/print.ts';
import { withScratch } from '../shared/scratch.ts';

const FLAG: What = { flag: '--working-dir' };

/** Packs a directory and uploads it if the service does not have it. Returns its URI. */
export async function uploadDirectory(io: Io, client: Client, directory: string, what: What = FLAG): Promise<string> {
  return await packAnd(io, directory, what, async ({ bytes }, archive, name) => {
    const path = `/api/packages/gcs/${name}`;
    if (await isThere(client, path)) return;
    await withSpinner(io, `uploading ${Math.ceil(bytes / 1024)} KiB`, () =>
      client.text('PUT', path, { upload: { content: createReadStream(archive), bytes }, timeoutMs: null }),
    );
  });
}

/** Returns the URI that an upload would have. Sends nothing. */
export async function nameOfDirectory(io: Io, directory: string, what: What = FLAG): Promise<string> {
  return await packAnd(io, directory, what, async () => undefined);
}

async function packAnd(
  io: Io,
  directory: string,
  what: What,
  act: (packed: Packed, archive: string, name: string) => Promise<void>,
): Promise<string> {
  const found = await stat(directory).catch(() => null);
  if (!found?.isDirectory()) throw usageError(`${what.flag} ${directory} is not a directory.`);
  return await withScratch('package', async work => {
    const archive = join(work, 'package.tar.gz');
    // Links are followed, because the job cannot reach their targets.
    const packed = await withSpinner(io, `packing ${directory}`, () =>
      packDirectory(directory, archive, { ...what, links: 'followed' }),
    );
    for (const warning of packed.warnings) printWarning(io, warning);
    const name = `_rookery_pkg_${packed.contentSha256.slice(0, 40)}.tar.gz`;
    await act(packed, archive, name);
    return `gcs://${name}`;
  });
}

async function isThere(client: Client, path: string): Promise<boolean> {
  try {
    await client.text('GET', path);
    return true;
  } catch (error) {
    if (error instanceof CliError && error.message.includes('does not exist')) return false;
    throw error;
  }
}
