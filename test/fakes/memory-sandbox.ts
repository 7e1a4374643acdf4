import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  alreadyExists,
  failedPrecondition,
  invalidRequest,
  notFound,
  unauthenticated,
  unavailable,
} from '../../src/core/error.ts';
import type {
  OpenFile,
  ProcessEnd,
  ProcessInfo,
  ProcessOutput,
  ProcessSelector,
  ProcessStream,
  SandboxAccess,
  SandboxProcesses,
  StartProcess,
  TerminalSize,
} from '../../src/sandbox/access.ts';
import type {
  DirectoryWatch,
  FileAccount,
  FileFacts,
  FileTree,
  SandboxFiles,
  WatchEvent,
  WatchOptions,
  WriteInPlaceOptions,
} from '../../src/sandbox/files.ts';

interface MemoryFile {
  /** null: a directory. */
  readonly content: Buffer | null;
  readonly owner: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A queue that one consumer iterates. */
class Queue<T> implements AsyncIterable<T> {
  readonly #items: T[] = [];
  #wake: (() => void) | undefined;
  #end: { readonly error: Error | null } | undefined;

  push(item: T): void {
    this.#items.push(item);
    this.#wake?.();
  }

  end(error: Error | null): void {
    this.#end ??= { error };
    this.#wake?.();
  }

  take(): T[] {
    return this.#items.splice(0);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      const item = this.#items.shift();
      if (item !== undefined) yield item;
      else if (this.#end?.error) throw this.#end.error;
      else if (this.#end) return;
      else
        await new Promise<void>(resolve => {
          this.#wake = resolve;
        });
    }
  }
}

/** A process whose output and end a test decides. */
export class MemoryProcess {
  readonly pid: number;
  readonly request: StartProcess;
  /** Input that was written to the process, and events such as `<closed>`. */
  readonly received: string[] = [];
  readonly #listeners = new Set<{
    readonly output: Queue<ProcessOutput>;
    readonly end: PromiseWithResolvers<ProcessEnd>;
  }>();
  ended: ProcessEnd | null = null;

  constructor(pid: number, request: StartProcess) {
    this.pid = pid;
    this.request = request;
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  listen(): ProcessStream {
    const listener = { output: new Queue<ProcessOutput>(), end: withResolvers<ProcessEnd>() };
    listener.end.promise.catch(() => undefined);
    this.#listeners.add(listener);
    if (this.ended) this.#finish(listener, this.ended);
    const close = () => {
      this.#listeners.delete(listener);
      listener.output.end(null);
      listener.end.reject(unavailable('closed'));
    };
    return { pid: this.pid, output: listener.output, ended: listener.end.promise, close };
  }

  print(kind: ProcessOutput['kind'], data: string | Buffer): void {
    for (const { output } of this.#listeners) output.push({ kind, data: Buffer.from(data) });
  }

  end(end: Partial<ProcessEnd>): void {
    this.ended = { code: null, signal: null, timedOut: false, ...end };
    for (const listener of this.#listeners) this.#finish(listener, this.ended);
  }

  /** Breaks all listeners, as the end of the sandbox does. */
  breakOff(): void {
    const error = unavailable('the sandbox ended');
    for (const { output, end } of this.#listeners) {
      output.end(error);
      end.reject(error);
    }
  }

  #finish({ output, end }: { output: Queue<ProcessOutput>; end: PromiseWithResolvers<ProcessEnd> }, how: ProcessEnd) {
    output.end(null);
    end.resolve(how);
  }
}

interface PromiseWithResolvers<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
}

function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: Error) => void;
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

/**
 * A sandbox in memory: files and directories below `/home/user`, processes that a test drives, and watches
 * that report what a test pushes. The only users are `user` and `root`.
 */
export class MemorySandbox implements SandboxProcesses, SandboxFiles {
  readonly files = new Map<string, MemoryFile>([
    ['/', { content: null, owner: 'root', metadata: {} }],
    ['/home', { content: null, owner: 'root', metadata: {} }],
    ['/home/user', { content: null, owner: 'user', metadata: {} }],
    ['/root', { content: null, owner: 'root', metadata: {} }],
  ]);
  readonly processes: MemoryProcess[] = [];
  readonly watches: { readonly options: WatchOptions; readonly queue: Queue<WatchEvent>; isOpen: boolean }[] = [];
  /** Runs for each started process. */
  onStart: (process: MemoryProcess) => void = () => undefined;
  hasEnded = false;

  get access(): SandboxAccess {
    return this as unknown as SandboxAccess;
  }

  async startProcess(request: StartProcess): Promise<ProcessStream> {
    ownerOf(request.user);
    if (request.workingDir === '/missing') throw invalidRequest("cwd '/missing' does not exist");
    const process = new MemoryProcess(100 + this.processes.length, request);
    this.processes.push(process);
    const stream = process.listen();
    this.onStart(process);
    return stream;
  }

  async attachProcess(selector: ProcessSelector): Promise<ProcessStream> {
    return this.#process(selector, true).listen();
  }

  async listProcesses(): Promise<readonly ProcessInfo[]> {
    if (this.hasEnded) throw unavailable('the sandbox ended');
    return this.processes
      .filter(({ ended }) => ended === null)
      .map(({ pid, request }) => ({
        pid,
        argv: request.argv,
        env: request.env,
        workingDir: request.workingDir,
        user: request.user,
        tag: request.tag ?? null,
        terminal: request.terminal !== null,
        startedAtMs: 0,
      }));
  }

  async writeInput(selector: ProcessSelector, data: Buffer, isTerminal: boolean): Promise<void> {
    const process = this.#process(selector);
    if (isTerminal !== (process.request.terminal !== null)) throw failedPrecondition('no such input');
    process.received.push(data.toString());
  }

  async closeInput(selector: ProcessSelector): Promise<void> {
    this.#process(selector).received.push('<closed>');
  }

  async signalProcess(selector: ProcessSelector, name: NodeJS.Signals): Promise<void> {
    this.#process(selector).end({ signal: name });
  }

  async resizeProcess(selector: ProcessSelector, { columns, rows }: TerminalSize): Promise<void> {
    this.#process(selector).received.push(`${columns}x${rows}`);
  }

  async statFile(path: string, { user }: FileAccount): Promise<FileFacts> {
    return this.#facts(placeOf(path, user));
  }

  async readFile(path: string, { user }: FileAccount): Promise<OpenFile> {
    const place = placeOf(path, user);
    const content = this.#file(place).content;
    if (content === null) throw invalidRequest(`path '${place}' is a directory`);
    const sizeBytes = place.startsWith('/proc/') ? 0 : content.length;
    const read = (start: number, end: number) =>
      Readable.from([content.subarray(start, end)].filter(each => each.length > 0));
    return { sizeBytes, modifiedAtMs: 1_700_000_000_500, mode: 0o644, read, close: () => undefined };
  }

  async writeInPlace(
    path: string,
    { user, metadata }: WriteInPlaceOptions,
    content: Readable,
    signal: AbortSignal,
  ): Promise<FileFacts> {
    const place = placeOf(path, user);
    if (this.files.get(place)?.content === null) throw invalidRequest(`path '${place}' is a directory`);
    const bytes = await buffer(content);
    if (signal.aborted) throw unavailable('given up');
    this.files.set(place, { content: bytes, owner: ownerOf(user), metadata: metadata ?? {} });
    return this.#facts(place);
  }

  async listTree(path: string, { user }: FileAccount): Promise<FileTree> {
    const place = placeOf(path, user);
    if (this.#file(place).content !== null) throw invalidRequest(`path '${place}' is not a directory`);
    const below = [...this.files.keys()].filter(each => each.startsWith(`${place}/`)).sort();
    return { entries: below.map(each => this.#facts(each)), truncated: false };
  }

  async createDirectory(path: string, { user }: FileAccount): Promise<FileFacts> {
    const place = placeOf(path, user);
    if (this.files.has(place)) throw alreadyExists(`directory already exists: ${place}`);
    this.files.set(place, { content: null, owner: ownerOf(user), metadata: {} });
    return this.#facts(place);
  }

  async renameFile(from: string, to: string, { user }: FileAccount): Promise<FileFacts> {
    const file = this.#file(placeOf(from, user));
    this.files.delete(placeOf(from, user));
    this.files.set(placeOf(to, user), file);
    return this.#facts(placeOf(to, user));
  }

  async removeFile(path: string, { user }: FileAccount): Promise<void> {
    this.files.delete(placeOf(path, user));
  }

  async watchDirectory(path: string, options: WatchOptions): Promise<DirectoryWatch> {
    this.#file(placeOf(path, options.user));
    const watch = { options, queue: new Queue<WatchEvent>(), isOpen: true };
    const ended = withResolvers<Error | null>();
    this.watches.push(watch);
    const close = () => {
      watch.isOpen = false;
      watch.queue.end(null);
      ended.resolve(null);
    };
    return {
      [Symbol.asyncIterator]: () => watch.queue[Symbol.asyncIterator](),
      drain: () => watch.queue.take(),
      flush: async () => undefined,
      ended: ended.promise,
      close,
    };
  }

  #process(selector: ProcessSelector, canHaveEnded = false): MemoryProcess {
    const found = this.processes.find(({ pid, request }) =>
      typeof selector === 'number' ? pid === selector : request.tag === selector.tag,
    );
    if (!found || (found.ended && !canHaveEnded)) throw notFound('process not found');
    return found;
  }

  #file(place: string): MemoryFile {
    const file = this.files.get(place);
    if (!file) throw notFound(`path '${place}' does not exist`);
    return file;
  }

  #facts(place: string): FileFacts {
    const { content, owner, metadata } = this.#file(place);
    return {
      path: place,
      type: content === null ? 'directory' : 'file',
      sizeBytes: content?.length ?? 4096,
      mode: content === null ? 0o755 : 0o644,
      modifiedAtMs: 1_700_000_000_500,
      owner,
      group: owner,
      metadata,
      target: null,
    };
  }
}

function ownerOf(user: string | null): string {
  const name = user || 'user';
  if (name !== 'user' && name !== 'root') throw unauthenticated(`invalid username: '${name}'`);
  return name;
}

function placeOf(path: string, user: string | null): string {
  const home = ownerOf(user) === 'root' ? '/root' : '/home/user';
  if (path === '' || path === '~') return home;
  if (path.startsWith('/')) return path;
  return `${home}/${path.replace(/^~\//, '')}`;
}
