import { failedPrecondition } from '../../src/core/error.ts';
import type { DirectoryWatch, FileFacts, FileTree, OpenFile, SandboxFiles } from '../../src/sandbox/files.ts';

/** Refuses the file operations for accounts, for fake sandboxes. */
export abstract class NoFiles implements SandboxFiles {
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
  return Promise.reject(failedPrecondition('a fake sandbox has no file operations for accounts'));
}
