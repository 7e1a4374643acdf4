import { createWriteStream, type WriteStream } from 'node:fs';
import type { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

type FileOptions = Exclude<Parameters<typeof createWriteStream>[1], string | undefined>;

/**
 * `pipeline` into a file. It settles once the file is closed, also when it fails: one that is still being opened then would be made behind the back of
 * whoever removes it.
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
