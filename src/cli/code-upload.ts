import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { isLoopback } from '../config/contradictions.ts';
import { codeUrl } from '../core/code-package.ts';
import type { Client } from './client.ts';
import { codeDirectory, type Packed, type PackOptions, packDirectory } from './code-archive.ts';
import { CliError } from './exit.ts';
import type { Io } from './io.ts';
import { withSpinner } from './print.ts';
import { withScratch } from './scratch.ts';

export interface UploadOptions {
  /** Also to a service of this machine. */
  readonly upload?: boolean;
}

/** How the directory was named, and what is no part of it. */
export type What = Pick<PackOptions, 'flag' | 'leftOut'>;
const FLAG: What = { flag: '--code' };

/** Whether the service cannot be thought to see the directories of this machine. */
export function mustUpload({ addresses }: Client, { upload }: UploadOptions): boolean {
  return upload === true || !isLoopback(addresses.frontend.hostname) || !isLoopback(addresses.meta.hostname);
}

/** Packs a directory and uploads it when the service does not have it yet; answers what a mount or a function names it by. */
export async function uploadCode(io: Io, client: Client, code: string, what: What = FLAG): Promise<string> {
  const { sha256 } = await packAnd(io, code, what, async (packed, archive) => {
    if (!(await isThere(client, packed.sha256))) await send(io, client, packed, archive);
  });
  return codeUrl(sha256);
}

/** What it would be named by. Sends nothing. */
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

async function send(io: Io, client: Client, { sha256, bytes, files }: Packed, archive: string): Promise<void> {
  const file = createReadStream(archive);
  const content = file.pipe(progress(io, bytes));
  file.on('error', error => content.destroy(error));
  await client.text('PUT', `/api/code/${sha256}`, { upload: { content, bytes }, timeoutMs: null });
  if (io.err.isTerminal)
    io.err.write(`\r\x1b[Kuploaded ${files} ${files === 1 ? 'file' : 'files'}, ${sizeText(bytes)}\n`);
}

const SHOW_MS = 100;

/** Tells a person how far it is. */
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

function sizeText(bytes: number): string {
  return bytes < 1024 * 1024 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}
