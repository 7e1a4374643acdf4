import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import * as client from '../../../clients/typescript/src/code-archive.ts';
import { IGNORE_FILE, type Packed, type PackOptions } from '../../../clients/typescript/src/code-archive.ts';
import { RookeryError } from '../../../clients/typescript/src/error.ts';
import { isLoopback } from '../../config/contradictions.ts';
import { codeUrl } from '../../core/code-package.ts';
import { messageOf } from '../../core/error.ts';
import type { Client } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printWarning, withSpinner } from '../shared/print.ts';
import { withScratch } from '../shared/scratch.ts';

export interface UploadOptions {
  /** True: upload even to a service on this machine. */
  readonly upload?: boolean;
}

/** The flag that named the directory, and the file that the upload omits. */
export type What = Pick<PackOptions, 'flag' | 'leftOut'>;
const FLAG: What = { flag: '--code' };

/** Returns true if the service probably cannot read the directories of this machine. */
export function mustUpload({ addresses }: Client, { upload }: UploadOptions): boolean {
  return upload === true || !isLoopback(addresses.frontend.hostname) || !isLoopback(addresses.meta.hostname);
}

/**
 * Packs a directory and uploads it if the service does not have it. Returns the URL for mounts and functions.
 */
export async function uploadCode(io: Io, client: Client, code: string, what: What = FLAG): Promise<string> {
  const { sha256 } = await packAnd(io, code, what, async (packed, archive) => {
    if (!(await isThere(client, packed.sha256))) await send(io, client, packed, archive);
  });
  return codeUrl(sha256);
}

/** Uploads an archive as it is if the service does not have it. Returns its URL. `flag` named the file. */
export async function uploadArchive(io: Io, client: Client, file: string, flag: string): Promise<string> {
  const hash = createHash('sha256');
  let bytes = 0;
  try {
    for await (const chunk of createReadStream(file)) {
      hash.update(chunk as Buffer);
      bytes += (chunk as Buffer).length;
    }
  } catch (error) {
    throw usageError(`${flag}: ${file} must be a zip or a tar.gz that can be read: ${messageOf(error)}`);
  }
  const sha256 = hash.digest('hex');
  if (await isThere(client, sha256)) return codeUrl(sha256);
  try {
    await send(io, client, { sha256, bytes, files: 1 }, file);
  } catch (error) {
    if (error instanceof CliError && error.status === 400) throw usageError(`${flag}: ${file}: ${error.message}`);
    throw error;
  }
  return codeUrl(sha256);
}

/** Returns the URL that an upload would have. Sends nothing. */
export async function nameOfCode(io: Io, code: string, what: What = FLAG): Promise<string> {
  const { sha256 } = await packAnd(io, code, what, async () => undefined);
  return codeUrl(sha256);
}

async function packAnd(
  io: Io,
  code: string,
  what: What,
  act: (packed: Packed, archive: string) => Promise<void>,
): Promise<Packed> {
  const directory = await codeDirectory(code, what.flag);
  return await withScratch('code', async work => {
    const archive = join(work, 'code.tar.gz');
    const packed = await withSpinner(io, `packing ${directory}`, () =>
      packDirectory(directory, archive, { ...what, links: 'kept' }),
    );
    for (const warning of packed.warnings) printWarning(io, warning);
    if (packed.files === 0)
      throw usageError(
        `${what.flag}: ${directory} has no file to send: it is empty, or ${IGNORE_FILE} leaves out all of it. Build a compiled program first.`,
      );
    await act(packed, archive);
    return packed;
  });
}

async function isThere(client: Client, sha256: string): Promise<boolean> {
  try {
    await client.text('GET', `/api/code/${sha256}`);
    return true;
  } catch (error) {
    if (error instanceof CliError && error.status === 404) return false;
    throw error;
  }
}

type Sent = Pick<Packed, 'sha256' | 'bytes' | 'files'>;

async function send(io: Io, client: Client, { sha256, bytes, files }: Sent, archive: string): Promise<void> {
  const file = createReadStream(archive);
  const content = file.pipe(progress(io, bytes));
  file.on('error', error => content.destroy(error));
  await client.text('PUT', `/api/code/${sha256}`, { upload: { content, bytes }, timeoutMs: null });
  if (io.err.isTerminal)
    io.err.write(`\r\x1b[Kuploaded ${files} ${files === 1 ? 'file' : 'files'}, ${sizeText(bytes)}\n`);
}

const SHOW_MS = 100;

/** Shows the progress of an upload. */
function progress(io: Io, bytes: number): Transform {
  let sent = 0;
  let shownAtMs = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      sent += chunk.length;
      if (io.err.isTerminal && Date.now() - shownAtMs >= SHOW_MS) {
        shownAtMs = Date.now();
        io.err.write(`\r\x1b[Kuploading ${sizeText(sent)} of ${sizeText(bytes)}`);
      }
      done(null, chunk);
    },
  });
}

export function sizeText(bytes: number): string {
  return bytes < 1024 * 1024 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** Packs a directory as the client package does. A problem of the directory is a usage error. */
export function packDirectory(directory: string, archive: string, options: client.PackOptions): Promise<client.Packed> {
  return client.packDirectory(directory, archive, options).catch(refuse);
}

/** Returns the absolute path of a directory. Fails with a usage error when it is none. */
export function codeDirectory(code: string, flag = '--code'): Promise<string> {
  return client.codeDirectory(code, flag).catch(refuse);
}

function refuse(error: unknown): never {
  throw error instanceof RookeryError ? usageError(error.message) : error;
}
