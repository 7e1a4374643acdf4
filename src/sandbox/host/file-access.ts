import type { Readable } from 'node:stream';
import type {
  FileList,
  ListFilesOptions,
  MakeDirectoryOptions,
  OpenFile,
  SandboxAccess,
  WriteFileOptions,
  WrittenFile,
} from '../access.ts';
import type { OpenWay } from './access-connection.ts';
import { listFiles, makeDirectory, openFile, writeFile } from './access-files.ts';

type Files = Pick<SandboxAccess, 'openFile' | 'writeFile' | 'listFiles' | 'makeDirectory'>;

/** The file operations of a sandbox over access connections, which each driver opens in its own way. */
export abstract class FileAccess implements Files {
  protected abstract readonly openWay: OpenWay;

  openFile(path: string, signal: AbortSignal): Promise<OpenFile> {
    return openFile(this.openWay, path, signal);
  }

  writeFile(path: string, options: WriteFileOptions, content: Readable, signal: AbortSignal): Promise<WrittenFile> {
    return writeFile(this.openWay, path, options, content, signal);
  }

  listFiles(path: string, options: ListFilesOptions, signal: AbortSignal): Promise<FileList> {
    return listFiles(this.openWay, path, options, signal);
  }

  makeDirectory(path: string, options: MakeDirectoryOptions, signal: AbortSignal): Promise<void> {
    return makeDirectory(this.openWay, path, options, signal);
  }
}
