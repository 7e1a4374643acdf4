import { createWriteStream, type WriteStream } from 'node:fs';
import type { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

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
