import { once } from 'node:events';
import { resourceExhausted } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { HeldBytes, type Holder } from '../lib/budgets.ts';
import { OPENED, OpenedLog } from '../lib/opened-log.ts';
import type { LogChunks, LogRequest } from '../sandbox/driver.ts';
import type { FunctionInstance } from './function-instance.ts';

const NEWLINE = 0x0a;
/** Bytes of all merged logs that their readers have not consumed. */
const WAITING = new HeldBytes(LIMITS.waitingLogBytes);

/** Chunk of a source. `resume` lets the source continue. */
interface Waiting {
  readonly chunk: Buffer;
  resume(): void;
}

/**
 * Merges many logs into one: whole lines in order of arrival, at the speed of the reader. Each source has at
 * most one waiting chunk. Sources may be added during reading. A source that fails ends, because its instance
 * has ended.
 */
export class LogMerge implements Holder {
  readonly #waiting: Waiting[] = [];
  readonly #over: AbortSignal;
  #heldBytes = 0;
  #isGivenUp = false;
  #isRead = false;
  #wakeReader: (() => void) | undefined;

  /** Reads until `over` aborts. */
  constructor(over: AbortSignal) {
    this.#over = over;
  }

  add(source: AsyncIterable<Buffer>): void {
    void this.#pump(source).catch(() => undefined);
  }

  /**
   * Yields the chunks. Fails with `resource_exhausted` when all followed logs hold too many unread bytes and
   * this one is given up.
   */
  async *read(): AsyncGenerator<Buffer> {
    const over = this.#over.aborted ? Promise.resolve() : once(this.#over, 'abort').then(() => undefined);
    void over.then(() => this.#wakeReader?.());
    try {
      while (!this.#isOver) {
        const next = this.#waiting.shift();
        if (next) {
          try {
            yield next.chunk;
          } finally {
            this.#countBytes(-next.chunk.length);
            next.resume();
          }
        } else {
          await new Promise<void>(resolve => {
            this.#wakeReader = resolve;
          });
        }
      }
      if (this.#isGivenUp) throw resourceExhausted('too many logs are followed and not read');
    } finally {
      this.#isRead = true;
      this.#dropAll();
    }
  }

  abandon(): void {
    this.#isGivenUp = true;
    this.#dropAll();
    this.#wakeReader?.();
  }

  get #isOver(): boolean {
    return this.#over.aborted || this.#isGivenUp || this.#isRead;
  }

  async #pump(source: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of source) {
      if (this.#isOver) return;
      await new Promise<void>(resume => {
        this.#waiting.push({ chunk, resume });
        this.#countBytes(chunk.length);
        this.#wakeReader?.();
      });
    }
  }

  #countBytes(bytes: number): void {
    this.#heldBytes += bytes;
    if (this.#isOver || this.#heldBytes === 0) WAITING.release(this);
    else WAITING.hold(this, this.#heldBytes);
  }

  #dropAll(): void {
    WAITING.release(this);
    for (const { resume } of this.#waiting.splice(0)) resume();
  }
}

/** Returns the output of several instances, one after another, with the prefix of each. */
export async function* joinedLogs(
  instances: readonly FunctionInstance[],
  request: LogRequest,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for (const instance of instances) yield* prefixed(instance.logs(request, signal), prefixOf(instance));
}

/**
 * Returns the merged output of several instances until `signal` aborts. `onStarted` subscribes to further
 * instances and returns the function that unsubscribes. `open`, or the first read, takes `instances` and
 * subscribes, and the end of the reader unsubscribes.
 */
export function followedLogs(
  ...parts: [
    instances: () => readonly FunctionInstance[],
    request: LogRequest,
    signal: AbortSignal,
    onStarted: (add: (instance: FunctionInstance) => void) => () => void,
  ]
): LogChunks {
  return new OpenedLog(() => followed(...parts));
}

async function* followed(
  instances: () => readonly FunctionInstance[],
  request: LogRequest,
  signal: AbortSignal,
  onStarted: (add: (instance: FunctionInstance) => void) => () => void,
): AsyncGenerator<Buffer> {
  if (signal.aborted) return;
  const merge = new LogMerge(signal);
  const add = (instance: FunctionInstance, wanted: LogRequest) => {
    const log = instance.logs(wanted, signal);
    merge.add(prefixed(log, prefixOf(instance)));
    return log;
  };
  const opened = instances().map(instance => add(instance, request).open?.());
  // All output of an instance that starts later is new to the reader.
  const unsubscribe = onStarted(instance => void add(instance, { ...request, tail: null }));
  try {
    // The log of an instance that has ended meanwhile may fail.
    await Promise.allSettled(opened);
    yield OPENED;
    yield* merge.read();
  } finally {
    unsubscribe();
  }
}

function prefixOf({ id }: FunctionInstance): string {
  return `[${id.slice(0, 8)}] `;
}

/**
 * Puts `prefix` before each line. Bytes that are not UTF-8 stay unchanged, and so do further pieces of a line
 * that spans chunks.
 */
export async function* prefixed(source: AsyncIterable<Buffer>, prefix: string): AsyncGenerator<Buffer> {
  let isInside = false;
  for await (const chunk of source) {
    if (chunk.length === 0) continue;
    const text = chunk.toString('latin1').replace(/\n(?=[\s\S])/g, `\n${prefix}`);
    yield Buffer.from(isInside ? text : prefix + text, 'latin1');
    isInside = chunk.at(-1) !== NEWLINE;
  }
}
