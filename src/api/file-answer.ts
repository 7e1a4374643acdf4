import { Transform, type TransformCallback } from 'node:stream';

/**
 * Passes exactly the given number of bytes. Fails when there are fewer, because a file may shrink during a
 * read.
 */
export class Exactly extends Transform {
  #left: number;

  constructor(bytes: number) {
    super();
    this.#left = bytes;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const passed = chunk.length > this.#left ? chunk.subarray(0, this.#left) : chunk;
    this.#left -= passed.length;
    done(null, passed);
  }

  override _flush(done: TransformCallback): void {
    done(this.#left === 0 ? null : new Error(`the file became ${this.#left} bytes shorter while it was read`));
  }
}

export interface Range {
  readonly start: number;
  /** End of the range, exclusive. */
  readonly end: number;
}

/**
 * Parses a `Range` header. null: the whole file.
 * Several ranges and ranges in other units than bytes also return null.
 */
export function readRange(header: string | undefined, sizeBytes: number): Range | 'outside' | null {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header?.replaceAll(' ', '') ?? '');
  if (!match) return null;
  const [, first = '', last = ''] = match;
  if (first === '' && last === '') return null;
  if (first === '') {
    const start = Math.max(0, sizeBytes - Number(last));
    return start === sizeBytes ? 'outside' : { start, end: sizeBytes };
  }
  const start = Number(first);
  if (last !== '' && Number(last) < start) return null;
  if (start >= sizeBytes) return 'outside';
  return { start, end: last === '' ? sizeBytes : Math.min(Number(last) + 1, sizeBytes) };
}

/** Returns whether `If-Range` still matches the file, so that a part of it may be sent. */
export function mayBePart(ifRange: string | string[] | undefined, tag: string, modifiedMs: number): boolean {
  if (typeof ifRange !== 'string') return true;
  return ifRange.startsWith('"') ? ifRange === tag : Date.parse(ifRange) === modifiedMs;
}

/** Returns whether the client's copy is current (`If-None-Match`, else `If-Modified-Since`). */
export function isUnchanged(
  ifNoneMatch: string | undefined,
  ifModifiedSince: string | undefined,
  tag: string,
  modifiedMs: number,
): boolean {
  if (ifNoneMatch !== undefined) {
    const tags = ifNoneMatch.split(',').map(each => each.trim().replace(/^W\//, ''));
    return tags.includes('*') || tags.includes(tag);
  }
  return ifModifiedSince !== undefined && modifiedMs <= Date.parse(ifModifiedSince);
}

/** Builds `Content-Disposition` (RFC 6266): an ASCII name for old clients, and the whole name in UTF-8. */
export function contentDisposition(kind: 'attachment' | 'inline', path: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1);
  const plain = name.replace(/[^\x20-\x7e]/g, '_').replace(/["\\%]/g, '_');
  if (plain === name) return `${kind}; filename="${name}"`;
  const encoded = encodeURIComponent(Buffer.from(name).toString()).replace(
    /['()*]/g,
    char => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `${kind}; filename="${plain}"; filename*=UTF-8''${encoded}`;
}
