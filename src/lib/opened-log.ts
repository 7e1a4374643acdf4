/** First chunk of a source of `OpenedLog`. Every empty chunk means the same. */
export const OPENED = Buffer.alloc(0);

/** A log whose source can be opened before it is read. It can be read once. */
export class OpenedLog implements AsyncIterable<Buffer> {
  readonly #start: () => AsyncGenerator<Buffer>;
  #opening: Promise<{ readonly source: AsyncGenerator<Buffer>; readonly first: Buffer }> | undefined;

  /**
   * `start` begins the source when the log is opened or read. The source yields `OPENED` when the place where
   * reading begins is fixed, and then the output.
   */
  constructor(start: () => AsyncGenerator<Buffer>) {
    this.#start = start;
  }

  async open(): Promise<void> {
    await this.#opened();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    const { source, first } = await this.#opened();
    try {
      if (first.length > 0) yield first;
      yield* source;
    } finally {
      await source.return(undefined);
    }
  }

  #opened() {
    this.#opening ??= (async () => {
      const source = this.#start();
      const { value } = await source.next();
      return { source, first: value ?? OPENED };
    })();
    return this.#opening;
  }
}
