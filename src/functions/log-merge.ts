import { once } from 'node:events';

/** Chunks that wait for the reader before their sources have to. */
const MAX_WAITING = 64;

/**
 * Many logs as one: whole lines in the order in which they come, no faster than the reader takes them. Sources may be added while it is
 * read; one that fails is over (its instance ended).
 */
export class LogMerge {
  readonly #chunks: Buffer[] = [];
  readonly #over: AbortSignal;
  #wakeReader: (() => void) | undefined;
  #wakeSources: (() => void)[] = [];

  /** It is read until `over` aborts. */
  constructor(over: AbortSignal) {
    this.#over = over;
  }

  add(source: AsyncIterable<Buffer>): void {
    void this.#pump(source).catch(() => undefined);
  }

  async *read(): AsyncGenerator<Buffer> {
    const over = this.#over.aborted ? Promise.resolve() : once(this.#over, 'abort').then(() => undefined);
    void over.then(() => this.#wake());
    while (!this.#over.aborted) {
      const chunk = this.#chunks.shift();
      if (chunk) {
        for (const wake of this.#wakeSources.splice(0)) wake();
        yield chunk;
      } else {
        await new Promise<void>(resolve => {
          this.#wakeReader = resolve;
        });
      }
    }
  }

  async #pump(source: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of source) {
      while (this.#chunks.length >= MAX_WAITING && !this.#over.aborted) {
        await new Promise<void>(resolve => this.#wakeSources.push(resolve));
      }
      if (this.#over.aborted) return;
      this.#chunks.push(chunk);
      this.#wakeReader?.();
    }
  }

  #wake(): void {
    this.#wakeReader?.();
    for (const wake of this.#wakeSources.splice(0)) wake();
  }
}

/** Each line with `prefix` in front; bytes that are no UTF-8 come through as they are. */
export async function* prefixed(source: AsyncIterable<Buffer>, prefix: string): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    yield Buffer.from(
      chunk.toString('latin1').replace(/(^|\n)(?=[\s\S])/g, (_, start: string) => start + prefix),
      'latin1',
    );
  }
}
