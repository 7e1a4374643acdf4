import { Transform } from 'node:stream';
import { failedPrecondition, type ServiceError } from '../core/error.ts';

/**
 * Headers that precede an entry and hold values too long for its own header. The library reads each into
 * memory as a whole.
 */
const LONG_HEADERS: Readonly<Record<string, string>> = {
  x: 'pax header',
  g: 'global pax header',
  L: 'GNU long name',
  N: 'GNU long name',
  K: 'GNU long link name',
};
const DIRECTORY = '5';
const BLOCK_BYTES = 512;
const MAX_LONG_BYTES = 64 * 1024;
/**
 * Limit of headers before one entry, which has at most one of each kind. These headers do not count as
 * entries, so this limit bounds their number.
 */
const MAX_LONG_HEADERS = 4;
/**
 * Limits of records per header. The library copies the records of a global header for each later entry, so
 * only a few are cheap. Git writes one (`comment`), other tools about ten.
 */
const MAX_PAX_RECORDS: Readonly<Record<string, number>> = { x: 128, g: 16 };
const MAX_LENGTH_DIGITS = 6;
const SPACE = 0x20;
const NEWLINE = 0x0a;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

interface TarHeader {
  readonly name: string;
  /** Type flag of the entry. */
  readonly type: string;
  readonly size: number;
}

/**
 * Passes a tar through unchanged, and fails at a header that is too expensive for the library. Such a header
 * is too large, has too many records, or is one of too many. Finds headers exactly as tar-stream does: a
 * header that both could read differently is refused. Fails with `failed_precondition`.
 */
export function boundHeaders(): Transform {
  const headers = new TarHeaderReader();
  return new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      try {
        headers.read(chunk);
      } catch (error) {
        done(error as Error);
        return;
      }
      done(null, chunk);
    },
  });
}

class TarHeaderReader {
  readonly #block = Buffer.alloc(BLOCK_BYTES);
  /** Buffer that is being filled: a header, or the records of a pax header. */
  #wanted: Buffer = this.#block;
  #filled = 0;
  /** Bytes to skip before the next header: content and its padding. */
  #skipped = 0;
  /** Header whose records are read next; null: a header is read next. */
  #pax: TarHeader | null = null;
  /** Size of the next entry, if a pax header gives it. */
  #paxSize: number | null = null;
  #longHeaders = 0;

  read(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#skipped > 0) {
        const skipped = Math.min(this.#skipped, chunk.length - at);
        this.#skipped -= skipped;
        at += skipped;
        continue;
      }
      const copied = chunk.copy(this.#wanted, this.#filled, at);
      at += copied;
      this.#filled += copied;
      if (this.#filled < this.#wanted.length) return;
      this.#filled = 0;
      if (this.#pax === null) this.#readHeader();
      else this.#readRecords(this.#pax);
    }
  }

  #readHeader(): void {
    if (isEmpty(this.#block)) return;
    const header = headerOf(this.#block);
    const kind = LONG_HEADERS[header.type];
    if (kind === undefined) {
      const size = this.#paxSize ?? header.size;
      this.#paxSize = null;
      this.#longHeaders = 0;
      // The library reads no content for a directory, whatever its size field says.
      this.#skipped = header.type === DIRECTORY ? 0 : wholeBlocks(size);
      return;
    }
    this.#longHeaders += 1;
    if (this.#longHeaders > MAX_LONG_HEADERS) {
      throw refuse(header.name, `is one of more than ${MAX_LONG_HEADERS} pax or GNU headers before one entry`);
    }
    if (header.size < 1 || header.size > MAX_LONG_BYTES) {
      throw refuse(header.name, `is a ${kind} of ${header.size} bytes, expected 1 to ${MAX_LONG_BYTES}`);
    }
    if (header.type === 'x' || header.type === 'g') {
      this.#pax = header;
      this.#wanted = Buffer.alloc(header.size);
    } else {
      this.#skipped = wholeBlocks(header.size);
    }
  }

  #readRecords(header: TarHeader): void {
    const size = sizeIn(this.#wanted, header);
    if (header.type === 'x') this.#paxSize = size;
    // A size in a global header would count for some later entries and not for others.
    else if (size !== null)
      throw refuse(header.name, 'is a global pax header with a size, expected in pax headers only');
    this.#pax = null;
    this.#wanted = this.#block;
    this.#skipped = wholeBlocks(header.size) - header.size;
  }
}

/** Returns the value of `size` in pax records (`length key=value\n`); null if there is none. */
function sizeIn(records: Buffer, { name, type }: TarHeader): number | null {
  const kind = LONG_HEADERS[type];
  const mostRecords = MAX_PAX_RECORDS[type] ?? 0;
  let size: string | null = null;
  let count = 0;
  for (let at = 0; at < records.length; ) {
    const space = records.subarray(at, at + MAX_LENGTH_DIGITS + 1).indexOf(SPACE);
    const digits = records.toString('latin1', at, at + Math.max(space, 0));
    const end = at + (/^\d+$/.test(digits) ? Number(digits) : 0);
    const record = records.subarray(at + space + 1, Math.max(end - 1, 0));
    const equals =
      end > at + space + 1 && end <= records.length && records[end - 1] === NEWLINE ? record.indexOf('=') : -1;
    if (equals === -1)
      throw refuse(name, `is a ${kind} with a broken record, expected "length key=value" and a newline`);
    count += 1;
    if (count > mostRecords) throw refuse(name, `is a ${kind} of more than ${mostRecords} records`);
    if (equals === 4 && record.toString('latin1', 0, equals) === 'size') size = record.toString('latin1', equals + 1);
    at = end;
  }
  if (size === null) return null;
  if (!/^\d{1,15}$/.test(size))
    throw refuse(name, `is a ${kind} with the size ${JSON.stringify(size.slice(0, 80))}, expected digits`);
  return Number(size);
}

function headerOf(block: Buffer): TarHeader {
  const name = textOf(block.subarray(0, 100));
  const size = sizeOf(block.subarray(124, 136));
  if (size === null) throw refuse(name, 'has a size that is no number, expected one in octal or base-256');
  return { name, type: String.fromCharCode(block[156] as number), size };
}

/** Returns the size; null for a field that is not a number, or that the library would read differently. */
function sizeOf(field: Buffer): number | null {
  // Base-256, for sizes that are too large for octal digits.
  if (field[0] === 0x80) return field.subarray(1, 6).every(byte => byte === 0) ? field.readUIntBE(6, 6) : null;
  // Up to the first space after leading ones.
  const [text = ''] = field.toString('latin1').replace(/^ +/, '').split(' ', 1);
  const digits = text.replace(/^\0+/, '');
  if (digits === '') return 0;
  return /^[0-7]+(?:\0|$)/.test(digits) ? Number.parseInt(digits, 8) : null;
}

/** Returns true for an empty block. The library ignores the checksum here, so this check does too. */
function isEmpty(block: Buffer): boolean {
  return isZero(block.subarray(0, 148)) && isZero(block.subarray(156));
}

function isZero(bytes: Buffer): boolean {
  return bytes.equals(ZEROS.subarray(0, bytes.length));
}

function wholeBlocks(bytes: number): number {
  return Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
}

function textOf(field: Buffer): string {
  const end = field.indexOf(0);
  return field.toString('utf8', 0, end === -1 ? field.length : end);
}

function refuse(name: string, why: string): ServiceError {
  return failedPrecondition(`the archive is refused: ${JSON.stringify(name)} ${why}`);
}
