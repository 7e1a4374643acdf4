import { FrameJoiner } from '../../lib/length-frames.ts';

/** Frame head: the stream, three empty bytes, and the length of the body. */
const HEAD_BYTES = 8;
const STDERR = 2;
/** Frames have no size limit: the daemon is trusted and sends what it has read at once. */
const ANY_BYTES = 0xffff_ffff;

/** Write of a container to stdout or stderr, as the Engine API's raw streams carry it. */
export interface StreamFrame {
  readonly isStderr: boolean;
  readonly data: Buffer;
}

/** Splits a raw stream of the Engine API into frames, chunk by chunk. */
export class FrameSplitter {
  readonly #joiner = new FrameJoiner(ANY_BYTES, HEAD_BYTES);

  push(chunk: Buffer): readonly StreamFrame[] {
    this.#joiner.push(chunk);
    const frames: StreamFrame[] = [];
    for (let frame = this.#joiner.take(); frame !== null; frame = this.#joiner.take()) {
      frames.push({ isStderr: frame.head[0] === STDERR, data: frame.body });
    }
    return frames;
  }
}
