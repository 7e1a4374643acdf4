import { AnswerHead } from './head.ts';

/** Receiver of an answer in parts: the head, its body in chunks, and then its end or its break. */
export interface AnswerSink {
  head(head: AnswerHead): void;
  data(chunk: Buffer): void;
  end(trailers: readonly string[]): void;
  broke(error: Error): void;
}

const END_OF_HEAD = '\r\n\r\n';
const NO_TRAILERS: readonly string[] = [];
/** Maximum length of the line with a chunk's size and extensions. */
const MAX_SIZE_LINE_BYTES = 1024;

type ReaderState = 'head' | 'length' | 'until-close' | 'chunk-size' | 'chunk' | 'chunk-end' | 'trailers';

/** Error of an answer that contradicts its head or HTTP. The connection must be closed. */
class NotHttp extends Error {
  constructor(what: string) {
    super(`its answer is not valid HTTP: ${what}`);
  }
}

/**
 * Parses consecutive HTTP/1.1 answers from the bytes of a connection. As strict as Node's parser: a replica
 * may forward bytes from a sandbox.
 */
export class AnswerReader {
  readonly #maxHeadBytes: number;
  #sink: AnswerSink | null = null;
  #isHead = false;
  #state: ReaderState = 'head';
  /** Bytes that wait for more input. */
  #rest: Buffer | null = null;
  #leftBytes = 0;
  #answer: AnswerHead | null = null;

  constructor(maxHeadBytes: number) {
    this.#maxHeadBytes = maxHeadBytes;
  }

  get isReading(): boolean {
    return this.#sink !== null;
  }

  /** Begins an answer. With `isHead` it has no body, whatever its head says. */
  begin(sink: AnswerSink, isHead: boolean): void {
    this.#sink = sink;
    this.#isHead = isHead;
    this.#state = 'head';
    this.#answer = null;
  }

  /** Drops the current answer. */
  forget(): void {
    this.#sink = null;
  }

  /**
   * Reads bytes. Calls `whole` when the answer is complete, before the sink is notified; `isReusable` says
   * whether the connection can take another request. Throws when the bytes are not a valid answer.
   */
  read(chunk: Buffer, whole: (isReusable: boolean) => void): void {
    let bytes: Buffer | null = this.#rest === null ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = null;
    while (bytes !== null) {
      const sink = this.#sink;
      if (sink === null) return;
      const { length } = bytes;
      const left: Buffer | null = this.#step(bytes, sink, whole);
      // A step that consumed nothing needs more bytes.
      if (left !== null && left.length === length) {
        this.#rest = left;
        return;
      }
      bytes = left;
    }
  }

  /** Notes the end of the connection's input. Returns false when the answer is incomplete. */
  ended(): boolean {
    const sink = this.#sink;
    if (sink === null || this.#state !== 'until-close') return false;
    this.#sink = null;
    sink.end(NO_TRAILERS);
    return true;
  }

  /** Consumes bytes and returns the rest: all of them when more are needed, null when none is left. */
  #step(bytes: Buffer, sink: AnswerSink, whole: (isReusable: boolean) => void): Buffer | null {
    switch (this.#state) {
      case 'head':
        return this.#readHead(bytes, sink, whole);
      case 'until-close':
        sink.data(bytes);
        return null;
      case 'length':
      case 'chunk':
        return this.#readBody(bytes, sink, whole);
      default:
        return this.#readLine(bytes, sink, whole);
    }
  }

  #readHead(bytes: Buffer, sink: AnswerSink, whole: (isReusable: boolean) => void): Buffer | null {
    const end = bytes.indexOf(END_OF_HEAD, 0, 'latin1');
    if ((end === -1 ? bytes.length : end) > this.#maxHeadBytes) throw new NotHttp('its head is too long');
    if (end === -1) return bytes;
    const lines = bytes.toString('latin1', 0, end).split('\r\n');
    const left = after(bytes, end + END_OF_HEAD.length);
    const match = /^HTTP\/1\.1 ([1-9]\d\d)(?: (.*))?$/.exec(lines[0] as string);
    if (match === null || NO_TEXT.test(match[2] ?? '')) throw new NotHttp('its first line is none');
    const status = Number(match[1]);
    if (status === 101) throw new NotHttp('it changed the protocol unasked');
    const answer = new AnswerHead(status, match[2] ?? '');
    for (let at = 1; at < lines.length; at += 1)
      addHeader(lines[at] as string, (name, value) => answer.add(name, value));
    // Interim answers concern only the two replicas.
    if (status < 200) return left;
    this.#answer = answer;
    this.#state = this.#begun(answer);
    sink.head(answer);
    if (this.#sink === null) return null;
    if (this.#state === 'length' && this.#leftBytes === 0) return this.#end(left, sink, whole, NO_TRAILERS);
    return left;
  }

  /** Returns the state in which the body is read. */
  #begun({ status, transferEncoding, length }: AnswerHead): ReaderState {
    this.#leftBytes = 0;
    if (length !== undefined && !/^\d{1,15}$/.test(length)) throw new NotHttp('its length is none');
    if (this.#isHead || status === 204 || status === 304) return 'length';
    if (transferEncoding !== undefined) {
      if (length !== undefined) throw new NotHttp('it has a length and comes in chunks');
      if (transferEncoding.toLowerCase() !== 'chunked') throw new NotHttp('its transfer encoding is not known');
      return 'chunk-size';
    }
    if (length === undefined) return 'until-close';
    this.#leftBytes = Number(length);
    return 'length';
  }

  #readBody(bytes: Buffer, sink: AnswerSink, whole: (isReusable: boolean) => void): Buffer | null {
    const taken = Math.min(this.#leftBytes, bytes.length);
    this.#leftBytes -= taken;
    const left = after(bytes, taken);
    sink.data(taken === bytes.length ? bytes : bytes.subarray(0, taken));
    if (this.#leftBytes > 0) return null;
    if (this.#state === 'length') return this.#end(left, sink, whole, NO_TRAILERS);
    this.#state = 'chunk-end';
    return left;
  }

  /** Reads the lines between chunks, and those after the last chunk. */
  #readLine(bytes: Buffer, sink: AnswerSink, whole: (isReusable: boolean) => void): Buffer | null {
    if (this.#state === 'trailers') return this.#readTrailers(bytes, sink, whole);
    const end = bytes.indexOf('\r\n', 0, 'latin1');
    if ((end === -1 ? bytes.length : end) > MAX_SIZE_LINE_BYTES) throw new NotHttp('the size of a chunk is too long');
    if (end === -1) return bytes;
    const line = bytes.toString('latin1', 0, end);
    const left = after(bytes, end + 2);
    if (this.#state === 'chunk-end') {
      if (line !== '') throw new NotHttp('a chunk is longer than it says');
      this.#state = 'chunk-size';
      return left;
    }
    const size = /^([\da-f]{1,8})[ \t]*(?:;.*)?$/i.exec(line)?.[1];
    if (size === undefined) throw new NotHttp('the size of a chunk is none');
    this.#leftBytes = Number.parseInt(size, 16);
    this.#state = this.#leftBytes === 0 ? 'trailers' : 'chunk';
    return left;
  }

  #readTrailers(bytes: Buffer, sink: AnswerSink, whole: (isReusable: boolean) => void): Buffer | null {
    if (bytes.length >= 2 && bytes[0] === 13 && bytes[1] === 10) {
      return this.#end(after(bytes, 2), sink, whole, NO_TRAILERS);
    }
    const end = bytes.indexOf(END_OF_HEAD, 0, 'latin1');
    if ((end === -1 ? bytes.length : end) > this.#maxHeadBytes) throw new NotHttp('its trailers are too long');
    if (end === -1) return bytes;
    const trailers: string[] = [];
    for (const line of bytes.toString('latin1', 0, end).split('\r\n')) {
      addHeader(line, (name, value) => trailers.push(name, value));
    }
    return this.#end(after(bytes, end + END_OF_HEAD.length), sink, whole, trailers);
  }

  #end(
    left: Buffer | null,
    sink: AnswerSink,
    whole: (isReusable: boolean) => void,
    trailers: readonly string[],
  ): Buffer | null {
    this.#sink = null;
    // No further request was sent, so bytes after the answer belong to none.
    whole(left === null && this.#answer?.isClosing !== true);
    sink.end(trailers);
    return null;
  }
}

/** Characters of a header's name. */
const NAME = /^[!#$%&'*+.^`|~\w-]+$/;
/** Characters that must not occur in a header's value or in a reason phrase. */
const NO_TEXT = /[^\t\x20-\x7e\x80-\xff]/;

function addHeader(line: string, add: (name: string, value: string) => void): void {
  const colon = line.indexOf(':');
  const name = line.slice(0, colon);
  if (colon === -1 || !NAME.test(name)) throw new NotHttp('a header has no name');
  const value = trimmed(line, colon + 1);
  if (NO_TEXT.test(value)) throw new NotHttp('a header has a value that is none');
  add(name, value);
}

/** Returns the text from `from` on, without blanks around it. */
function trimmed(line: string, from: number): string {
  let begin = from;
  let end = line.length;
  while (begin < end && isBlank(line, begin)) begin += 1;
  while (end > begin && isBlank(line, end - 1)) end -= 1;
  return line.slice(begin, end);
}

function isBlank(line: string, at: number): boolean {
  const code = line.charCodeAt(at);
  return code === 32 || code === 9;
}

function after(bytes: Buffer, at: number): Buffer | null {
  return at === bytes.length ? null : bytes.subarray(at);
}
