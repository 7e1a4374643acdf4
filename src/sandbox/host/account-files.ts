import type { Readable } from 'node:stream';
import type {
  DirectoryWatch,
  FileAccount,
  FileFacts,
  FileTree,
  FileType,
  ListTreeOptions,
  OpenFile,
  SandboxFiles,
  WatchOptions,
  WriteInPlaceOptions,
} from '../files.ts';
import type { AccessAnswer, OpenAccess } from './access-connection.ts';
import { RemoteWatch } from './directory-watch.ts';
import { openedFile, upload } from './file-streams.ts';

/** The file operations for accounts over access connections, which each driver opens in its own way. */
export abstract class AccountFileAccess implements SandboxFiles {
  protected abstract readonly openAccess: OpenAccess;

  async statFile(path: string, { user }: FileAccount, signal: AbortSignal): Promise<FileFacts> {
    return factsIn(await this.#ask({ op: 'stat', path, user }, signal));
  }

  async readFile(path: string, { user }: FileAccount, signal: AbortSignal): Promise<OpenFile> {
    return openedFile(await this.openAccess('account', { op: 'open', path, user }, signal), path);
  }

  async writeInPlace(
    path: string,
    { user, metadata }: WriteInPlaceOptions,
    content: Readable,
    signal: AbortSignal,
  ): Promise<FileFacts> {
    const open = () => this.openAccess('account', { op: 'write', path, user, metadata }, signal);
    return factsIn(await upload(open, path, content));
  }

  async listTree(
    path: string,
    { user, maxDepth, maxEntries }: ListTreeOptions,
    signal: AbortSignal,
  ): Promise<FileTree> {
    const { entries, truncated } = await this.#ask({ op: 'list', path, user, maxDepth, maxEntries }, signal);
    return { entries: (entries as FactsTuple[]).map(factsOf), truncated: truncated === true };
  }

  async createDirectory(path: string, { user }: FileAccount, signal: AbortSignal): Promise<FileFacts> {
    return factsIn(await this.#ask({ op: 'mkdir', path, user }, signal));
  }

  async renameFile(from: string, to: string, { user }: FileAccount, signal: AbortSignal): Promise<FileFacts> {
    return factsIn(await this.#ask({ op: 'rename', path: from, to, user }, signal));
  }

  async removeFile(path: string, { user }: FileAccount, signal: AbortSignal): Promise<void> {
    await this.#ask({ op: 'remove', path, user }, signal);
  }

  async watchDirectory(
    path: string,
    { user, recursive, withFacts }: WatchOptions,
    signal: AbortSignal,
  ): Promise<DirectoryWatch> {
    return new RemoteWatch(
      await this.openAccess('watch', { path, user, recursive, facts: withFacts }, signal),
      factsOf,
    );
  }

  async #ask(request: object, signal: AbortSignal): Promise<AccessAnswer> {
    const { answer, socket } = await this.openAccess('account', request, signal);
    socket.destroy();
    return answer;
  }
}

/** Facts as `runtimes/native/src/facts.c` writes them. */
export type FactsTuple = readonly [
  path: string,
  type: FileType,
  sizeBytes: number,
  mode: number,
  modifiedAtMs: number,
  owner: string,
  group: string,
  metadata: Readonly<Record<string, string>>,
  target: readonly [path: string, type: FileType | null, mode: number, sizeBytes: number] | null,
];

function factsIn(answer: AccessAnswer): FileFacts {
  return factsOf(answer.facts as FactsTuple);
}

function factsOf([path, type, sizeBytes, mode, modifiedAtMs, owner, group, metadata, to]: FactsTuple): FileFacts {
  const target = to === null ? null : { path: to[0], type: to[1], mode: to[2], sizeBytes: to[3] };
  return { path, type, sizeBytes, mode, modifiedAtMs, owner, group, metadata, target };
}
