/** Bytes of the yielded log that are kept, to find its end again in a log with an unknown beginning. */
const KEPT_BYTES = 64 * 1024;
const NEWLINE = 0x0a;
const PREFIX = /^\[[0-9a-f]{8}\] /;

/** Tracks how much of each instance's lines was yielded. */
export class LogPosition {
  hasBegun = false;
  readonly #isOfInstances: boolean;
  /** Null: unknown, because only the last lines were requested. */
  #start: 0 | null;
  readonly #sources = new Map<string, Source>();
  #source = '';

  /** `isOfInstances`: each line begins with its instance; only lines of the same instance have an order. */
  constructor(isWhole: boolean, isOfInstances: boolean) {
    this.#isOfInstances = isOfInstances;
    this.#start = isWhole ? 0 : null;
  }

  get hasYielded(): boolean {
    return this.#sources.size > 0;
  }

  begin(): void {
    this.hasBegun = true;
    for (const source of this.#sources.values()) source.toSkip = source.bytes ?? 0;
  }

  /** Returns the part of `chunk` that was not yielded before. */
  advance(chunk: Buffer): Buffer {
    return Buffer.concat(this.#parts(chunk).map(([name, part]) => this.#sourceOf(name).advance(part)));
  }

  /**
   * Finds the end of the yielded part in the current log. Returns false when the log no longer contains it.
   */
  async find(log: AsyncIterable<Uint8Array>): Promise<boolean> {
    const now = new Map<string, Buffer[]>();
    for await (const chunk of log) {
      for (const [name, part] of this.#parts(Buffer.from(chunk))) now.set(name, [...(now.get(name) ?? []), part]);
    }
    this.#source = '';
    let isFound = true;
    for (const [name, source] of this.#sources) {
      const lines = now.get(name);
      if (lines !== undefined && !source.find(Buffer.concat(lines))) isFound = false;
    }
    this.#start = 0;
    return isFound;
  }

  #sourceOf(name: string): Source {
    const source = this.#sources.get(name) ?? new Source(this.#start);
    this.#sources.set(name, source);
    return source;
  }

  #parts(chunk: Buffer): readonly (readonly [name: string, part: Buffer])[] {
    if (!this.#isOfInstances) return [['', chunk]];
    const parts: [string, Buffer][] = [];
    for (let at = 0; at < chunk.length; ) {
      const next = chunk.indexOf(NEWLINE, at) + 1 || chunk.length;
      this.#source = PREFIX.exec(chunk.toString('latin1', at, at + 11))?.[0] ?? this.#source;
      parts.push([this.#source, chunk.subarray(at, next)]);
      at = next;
    }
    return parts;
  }
}

class Source {
  bytes: number | null;
  toSkip = 0;
  #kept: Buffer = Buffer.alloc(0);

  constructor(start: number | null) {
    this.bytes = start;
  }

  advance(part: Buffer): Buffer {
    const fresh = part.subarray(Math.min(this.toSkip, part.length));
    this.toSkip -= part.length - fresh.length;
    if (this.bytes !== null) this.bytes += fresh.length;
    this.#kept = Buffer.from(Buffer.concat([this.#kept, fresh]).subarray(-KEPT_BYTES));
    return fresh;
  }

  /** Finds the end of the yielded part. A rotated log has lost its beginning. */
  find(log: Buffer): boolean {
    const end = this.bytes;
    const isAsBefore = end !== null && log.subarray(end - this.#kept.length, end).equals(this.#kept);
    if (isAsBefore) return true;
    const at = log.lastIndexOf(this.#kept);
    this.bytes = at === -1 ? 0 : at + this.#kept.length;
    return at !== -1;
  }
}
