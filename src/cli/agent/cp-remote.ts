import { basename } from 'node:path';
import { MEBIBYTE } from '../../core/units.ts';
import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printable } from '../shared/print.ts';

/** The files of a sandbox. */
export interface Remote {
  readonly client: Client;
  /** The name or id from the command line. */
  readonly agent: string;
  /** `/api/agent/<id>/files` */
  readonly base: string;
}

export interface RemoteEntry {
  readonly name: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'other';
  readonly mode: number;
  /** False: the name is not UTF-8, and no request can name the file. */
  readonly isUtf8: boolean;
}

interface ListedFile {
  readonly name: string;
  readonly type: RemoteEntry['type'];
  readonly mode: string;
  readonly not_utf8?: boolean;
}

/** Returns the files of a directory of the sandbox. */
export async function listRemote({ client, base }: Remote, path: string): Promise<RemoteEntry[]> {
  const { files, truncated } = await client.json('GET', `${base}/list?${new URLSearchParams({ path })}`);
  if (truncated === true) throw new CliError(`There are too many files in ${path} to be copied: pack them first.`);
  return (files as ListedFile[]).map(({ name, type, mode, not_utf8 }) => ({
    // The sandbox chooses names. A name that could lead to another directory here is refused.
    name: checkName(name),
    type,
    mode: Number.parseInt(mode, 8) & 0o777,
    isUtf8: not_utf8 !== true,
  }));
}

export async function isRemoteDirectory(remote: Remote, path: string): Promise<boolean> {
  try {
    await listRemote(remote, path);
    return true;
  } catch (error) {
    if (error instanceof CliError && (error.status === 400 || error.status === 404)) return false;
    throw error;
  }
}

export function joinRemote(directory: string, name: string): string {
  return directory.endsWith('/') ? directory + name : `${directory}/${name}`;
}

function checkName(name: string): string {
  if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name)) {
    throw new CliError(`The sandbox has a file with a name that cannot be used here: ${JSON.stringify(name)}.`);
  }
  return name;
}

/** Returns the name of a copy of `source`; `''` for a path to the content of a directory (`dir/.`). */
export function copyName(source: string): string {
  const name = basename(source);
  return name === '.' || name === '..' ? '' : name;
}

const SHOW_MS = 100;

/** Shows the progress of a copy on stderr, only on a terminal. */
export class CopyProgress {
  readonly #io: Io;
  #files = 0;
  #bytes = 0;
  #shownAtMs = 0;

  constructor(io: Io) {
    this.#io = io;
  }

  addBytes(bytes: number): void {
    this.#bytes += bytes;
    this.#show();
  }

  addFile(): void {
    this.#files += 1;
    this.#show();
  }

  /** Warns about an entry that the copy omits. */
  warn(sentence: string): void {
    this.#clear();
    this.#io.err.write(`${printable(sentence)}\n`);
  }

  end(): void {
    this.#clear();
    if (this.#io.err.isTerminal) this.#io.err.write(`copied ${this.#text()}\n`);
  }

  #show(): void {
    if (!this.#io.err.isTerminal || Date.now() - this.#shownAtMs < SHOW_MS) return;
    this.#shownAtMs = Date.now();
    this.#io.err.write(`\r\x1b[K${this.#text()}`);
  }

  #clear(): void {
    if (this.#io.err.isTerminal) this.#io.err.write('\r\x1b[K');
  }

  #text(): string {
    return `${this.#files} ${this.#files === 1 ? 'file' : 'files'}, ${(this.#bytes / MEBIBYTE).toFixed(1)} MiB`;
  }
}
