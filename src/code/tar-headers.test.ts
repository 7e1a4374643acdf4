import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { boundHeaders } from './tar-headers.ts';
import { unpack } from './unpack.ts';

const LIMITS = { maxBytes: 1_000_000, maxEntries: 50, links: 'kept' as const };
const LONG = 64 * 1024;
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-tar-headers-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

/**
 * Makes a header and its content, padded to whole blocks.
 * `size` replaces the size field, which otherwise is the size of the content.
 */
function entry(name: string, type: string, content: string | Buffer = '', size?: string | Buffer): Buffer {
  const bytes = Buffer.from(content);
  const header = Buffer.alloc(512);
  header.write(name);
  header.write('0000644\0', 100);
  const field = Buffer.from(size ?? `${bytes.length.toString(8).padStart(11, '0')}\0`);
  field.copy(header, 124);
  header.write(type, 156, 'latin1');
  header.write('ustar\x0000', 257);
  header.fill(' ', 148, 156);
  const sum = header.reduce((all, byte) => all + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return Buffer.concat([header, bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}

function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length;
  while (`${length}`.length + rest.length !== length) length = `${length}`.length + rest.length;
  return `${length}${rest}`;
}

function base256(size: number): Buffer {
  const field = Buffer.alloc(12);
  field[0] = 0x80;
  field.writeUIntBE(size, 6, 6);
  return field;
}

async function unpacked(...parts: readonly Buffer[]): Promise<string> {
  const target = await mkdtemp(join(directory, 'target-'));
  const archive = join(directory, 'a.tar.gz');
  await writeFile(archive, gzipSync(Buffer.concat([...parts, Buffer.alloc(1024)])));
  await unpack(archive, target, LIMITS);
  return target;
}

/** Returns the output of `boundHeaders` for `tar` in pieces of `bytes` bytes. */
async function passed(tar: Buffer, bytes: number): Promise<Buffer> {
  const pieces = Array.from({ length: Math.ceil(tar.length / bytes) }, (_, index) =>
    tar.subarray(index * bytes, (index + 1) * bytes),
  );
  const chunks: Buffer[] = [];
  for await (const chunk of Readable.from(pieces).pipe(boundHeaders())) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

const file = entry('file', '0', 'x');

describe('archives of other programs', () => {
  // The header truncates this name after a `/`, but the entry is no directory.
  const NAME = `${'directory-of-some-length/'.repeat(8)}é`;

  test.each(['GNU_FORMAT', 'PAX_FORMAT'])(
    'boundHeaders passes an archive of Python unchanged, whatever the size of its pieces: %s',
    async format => {
      const archive = join(directory, 'python.tar.gz');
      const program = `
import io, sys, tarfile
with tarfile.open(sys.argv[1], 'w:gz', format=getattr(tarfile, sys.argv[2]), pax_headers={'comment': 'a' * 40}) as t:
    for name, link in ((sys.argv[3], ''), ('link', sys.argv[3]), ('small', '')):
        info = tarfile.TarInfo(name)
        info.mtime = 1.5
        info.linkname, info.type = link, tarfile.SYMTYPE if link else tarfile.REGTYPE
        content = b'' if link else b'x' * 700
        info.size = len(content)
        t.addfile(info, io.BytesIO(content))
`;
      execFileSync('python3', ['-c', program, archive, format, NAME]);
      const target = await mkdtemp(join(directory, 'target-'));
      await unpack(archive, target, LIMITS);
      expect(await readFile(join(target, NAME), 'utf8')).toBe('x'.repeat(700));
      expect(await readlink(join(target, 'link'))).toBe(NAME);
      const tar = gunzipSync(await readFile(archive));
      for (const bytes of [7, 511, 512, 513, 100_000]) expect((await passed(tar, bytes)).equals(tar)).toBe(true);
    },
  );

  test('unpack accepts a global header with a comment, as git writes it', async () => {
    const comment = record('comment', 'a'.repeat(40));
    const target = await unpacked(entry('pax_global_header', 'g', comment), entry('h', 'x', record('path', 'p')), file);
    expect(await readFile(join(target, 'p'), 'utf8')).toBe('x');
  });

  test('unpack accepts every kind of long name before one entry', async () => {
    const target = await unpacked(
      entry('g', 'g', record('comment', 'x')),
      entry('l', 'L', 'name\0'),
      entry('k', 'K', 'file\0'),
      entry('x', 'x', record('mtime', '1.5')),
      entry('short', '2'),
      file,
    );
    expect(await readlink(join(target, 'name'))).toBe('file');
  });

  test('unpack reads sizes in pax headers, in base-256 and with spaces', async () => {
    const target = await unpacked(
      entry('h', 'x', record('size', '700')),
      entry('pax', '0', 'p'.repeat(700), '00000000000\0'),
      entry('base', '0', 'b'.repeat(700), base256(700)),
      entry('spaces', '0', 's'.repeat(8), '         10 '),
    );
    for (const [name, size] of Object.entries({ pax: 700, base: 700, spaces: 8 })) {
      expect(await readFile(join(target, name), 'utf8')).toBe((name[0] as string).repeat(size));
    }
  });
});

describe('headers before an entry', () => {
  test.each([
    ['x', 'pax header'],
    ['g', 'global pax header'],
    ['L', 'GNU long name'],
    ['N', 'GNU long name'],
    ['K', 'GNU long link name'],
  ])('a header before an entry is bounded, whatever type declares its size: %s', async (type, kind) => {
    const why = `the archive is refused: "h" is a ${kind} of ${LONG + 1} bytes, expected 1 to ${LONG}`;
    // The archive lacks the content, because the header alone is refused.
    await expect(unpacked(entry('h', type, '', (LONG + 1).toString(8)))).rejects.toThrow(why);
    await expect(unpacked(entry('h', type, '', base256(LONG + 1)))).rejects.toThrow(why);
    await expect(unpacked(file, entry('h', type))).rejects.toThrow(`is a ${kind} of 0 bytes`);
  });

  test('a header before an entry may be as large as the limit', async () => {
    const comment = record('comment', 'x'.repeat(LONG - 'nnnnn comment=\n'.length));
    expect(comment.length).toBe(LONG);
    await unpacked(entry('h', 'x', comment), file);
    await unpacked(entry('h', 'L', 'name\0'.padEnd(LONG, '\0')), file);
  });

  test('more than 4 headers before one entry are refused, and the count starts again for each entry', async () => {
    const header = entry('h', 'x', record('mtime', '1'));
    const others = [1, 2, 3].flatMap(index => [header, header, header, header, entry(`f${index}`, '0')]);
    await unpacked(...others);
    await expect(unpacked(...others, header, header, header, header, Buffer.alloc(512), header, file)).rejects.toThrow(
      'the archive is refused: "h" is one of more than 4 pax or GNU headers before one entry',
    );
  });

  test.each([
    ['x', 128],
    ['g', 16],
  ])('a header of type %s with more than %i records is refused', async (type, most) => {
    const records = (count: number) => Array.from({ length: count }, (_, index) => record(`k${index}`, '')).join('');
    await unpacked(entry('h', type, records(most)), file);
    await expect(unpacked(entry('h', type, records(most + 1)), file)).rejects.toThrow(`of more than ${most} records`);
  });

  test.each(['x', '5 a=x', '5 a=xy', '9 a=x\n', '-6 a=x\n', '4 a\n', '3 \n', '0 a=x\n', '0000006 a=x\n', '6 a=x\n\0'])(
    'a header with the broken record %j is refused',
    async records => {
      const why = 'with a broken record, expected "length key=value" and a newline';
      await expect(unpacked(entry('h', 'x', records), file)).rejects.toThrow(why);
    },
  );

  test('a size in a global header, and a size that is not digits, are refused', async () => {
    const global = entry('h', 'g', record('size', '1'));
    await expect(unpacked(global, file)).rejects.toThrow('is a global pax header with a size');
    for (const size of ['', '-1', '1e3', ' 1', '1'.repeat(16)]) {
      await expect(unpacked(entry('h', 'x', record('size', size)), file)).rejects.toThrow(
        `is a pax header with the size ${JSON.stringify(size)}, expected digits`,
      );
    }
  });
});

describe('positions of headers', () => {
  const hostile = entry('hostile', 'g', '', '77777777777\0');

  test('bytes of a file that look like a header are read as content', async () => {
    for (const bytes of [512, 513, 1023, 1024]) {
      const content = Buffer.concat([hostile, hostile]).subarray(0, bytes);
      await unpacked(entry('f', '0', content));
      await unpacked(entry('h', 'x', record('size', String(bytes))), entry('f', '0', content, ''));
      await unpacked(entry('h', 'L', content), file).catch((error: Error) =>
        expect(error.message).toContain('"hostile"'),
      );
    }
  });

  test('bytes of a file whose name ends in a slash are read as content', async () => {
    const target = await unpacked(entry('f/', '0', hostile), entry('e', '0'));
    expect((await readFile(join(target, 'f'))).equals(hostile)).toBe(true);
  });

  test.each([
    ['a directory that declares content', [entry('d', '5', '', '00000001000\0')]],
    [
      'a file that its pax header declares as empty',
      [entry('h', 'x', record('size', '0')), entry('f', '0', '', '1000')],
    ],
    [
      'a block with only a checksum',
      [
        entry('h', 'x', record('size', '0')),
        Buffer.from(`${'\0'.repeat(148)}7`.padEnd(512, '\0')),
        entry('f', '0', '', '1000'),
      ],
    ],
    [
      'an entry after one with a pax header',
      [entry('h', 'x', record('size', '512')), entry('f', '0', 'x'), entry('e', '0')],
    ],
  ])('a header is found behind %s', async (_title, before) => {
    await expect(unpacked(...before, hostile)).rejects.toThrow('"hostile" is a global pax header of 8589934591 bytes');
  });

  test.each([
    'x',
    ' \t5',
    '-5',
    '8',
    '\x0015x',
    '0x5',
    Buffer.from([0x81, 1]),
    Buffer.from([0xff, 1]),
    Buffer.from([0x80, 1]),
  ])('an entry whose size is not a number is refused without a hang: %j', async size => {
    await expect(unpacked(entry('f', '0', '', size), file)).rejects.toThrow(
      'the archive is refused: "f" has a size that is no number, expected one in octal or base-256',
    );
  });
});
