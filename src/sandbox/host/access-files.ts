import type { Readable } from 'node:stream';
import type {
  FileEntry,
  FileList,
  ListFilesOptions,
  MakeDirectoryOptions,
  OpenFile,
  SandboxAccess,
  WriteFileOptions,
  WrittenFile,
} from '../access.ts';
import type { OpenAccess } from './access-connection.ts';
import { AccountFileAccess } from './account-files.ts';
import { openedFile, upload } from './file-streams.ts';

const MAX_MODE = 0o7777;

export async function openFile(openAccess: OpenAccess, path: string, signal: AbortSignal): Promise<OpenFile> {
  return openedFile(await openAccess('files', { op: 'open', path }, signal), path);
}

/** Writes `content` to `path` inside. Always consumes or destroys `content`. */
export async function writeFile(
  openAccess: OpenAccess,
  path: string,
  options: WriteFileOptions,
  content: Readable,
  signal: AbortSignal,
): Promise<WrittenFile> {
  const open = () => openAccess('files', { op: 'write', path, mode: modeOf(options.mode) }, signal);
  const { sizeBytes } = await upload(open, path, content);
  return { sizeBytes: sizeBytes as number };
}

export async function listFiles(
  openAccess: OpenAccess,
  path: string,
  { maxDepth, maxEntries }: ListFilesOptions,
  signal: AbortSignal,
): Promise<FileList> {
  const connection = await openAccess('files', { op: 'list', path, maxDepth, maxEntries }, signal);
  connection.socket.destroy();
  const { entries, truncated } = connection.answer;
  return { entries: (entries as EntryTuple[]).map(entryOf), truncated: truncated === true };
}

export async function makeDirectory(
  openAccess: OpenAccess,
  path: string,
  { mode, recursive }: MakeDirectoryOptions,
  signal: AbortSignal,
): Promise<void> {
  const connection = await openAccess('files', { op: 'mkdir', path, mode: modeOf(mode), recursive }, signal);
  connection.socket.destroy();
}

type EntryTuple = readonly [path: string, type: FileEntry['type'], size: number, mode: number, modifiedAtMs: number];

function entryOf([path, type, sizeBytes, mode, modifiedAtMs]: EntryTuple): FileEntry {
  return { path, type, sizeBytes, mode, modifiedAtMs };
}

function modeOf(mode: number | null): number | null {
  return mode === null ? null : mode & MAX_MODE;
}

type Files = Pick<SandboxAccess, 'openFile' | 'writeFile' | 'listFiles' | 'makeDirectory'>;

/** The file operations of a sandbox over access connections, which each driver opens in its own way. */
export abstract class FileAccess extends AccountFileAccess implements Files {
  openFile(path: string, signal: AbortSignal): Promise<OpenFile> {
    return openFile(this.openAccess, path, signal);
  }

  writeFile(path: string, options: WriteFileOptions, content: Readable, signal: AbortSignal): Promise<WrittenFile> {
    return writeFile(this.openAccess, path, options, content, signal);
  }

  listFiles(path: string, options: ListFilesOptions, signal: AbortSignal): Promise<FileList> {
    return listFiles(this.openAccess, path, options, signal);
  }

  makeDirectory(path: string, options: MakeDirectoryOptions, signal: AbortSignal): Promise<void> {
    return makeDirectory(this.openAccess, path, options, signal);
  }
}
