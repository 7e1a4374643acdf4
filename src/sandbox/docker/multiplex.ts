const HEADER_BYTES = 8;
const STDERR = 2;

/** One write of a container to stdout or stderr, as the Engine API's raw streams carry it. */
export interface StreamFrame {
  readonly isStderr: boolean;
  readonly data: Buffer;
}

/** Takes such a stream apart, chunk by chunk. */
export class FrameSplitter {
  #rest: Buffer[] = [];
  #bytes = 0;
  #wanted = HEADER_BYTES;

  push(chunk: Buffer): readonly StreamFrame[] {
    this.#rest.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#wanted) return [];
    const data = this.#rest.length === 1 ? chunk : Buffer.concat(this.#rest);
    const frames: StreamFrame[] = [];
    let at = 0;
    for (;;) {
      this.#wanted = HEADER_BYTES;
      if (data.length - at < HEADER_BYTES) break;
      const size = data.readUInt32BE(at + 4);
      if (data.length - at < HEADER_BYTES + size) {
        this.#wanted = HEADER_BYTES + size;
        break;
      }
      const start = at + HEADER_BYTES;
      frames.push({ isStderr: data[at] === STDERR, data: data.subarray(start, start + size) });
      at = start + size;
    }
    this.#rest = at < data.length ? [data.subarray(at)] : [];
    this.#bytes = data.length - at;
    return frames;
  }
}
