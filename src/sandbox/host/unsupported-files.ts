import { failedPrecondition } from '../../core/error.ts';
import type { DirectoryWatch, FileFacts, FileTree, OpenFile, SandboxFiles } from '../files.ts';

/** Refuses all file operations for accounts with `failed_precondition`. */
export abstract class UnsupportedFiles implements SandboxFiles {
  statFile(): Promise<FileFacts> {
    return refuse();
  }

  readFile(): Promise<OpenFile> {
    return refuse();
  }

  writeInPlace(): Promise<FileFacts> {
    return refuse();
  }

  listTree(): Promise<FileTree> {
    return refuse();
  }

  createDirectory(): Promise<FileFacts> {
    return refuse();
  }

  renameFile(): Promise<FileFacts> {
    return refuse();
  }

  removeFile(): Promise<void> {
    return refuse();
  }

  watchDirectory(): Promise<DirectoryWatch> {
    return refuse();
  }
}

function refuse(): Promise<never> {
  return Promise.reject(failedPrecondition('this sandbox has no file operations for accounts'));
}
