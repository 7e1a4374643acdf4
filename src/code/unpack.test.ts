import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { mkdtemp, readFile, readlink, realpath, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import tar from 'tar-stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { unpack } from './unpack.ts';

/** Methods of Python's `zipfile`. */
const [ZIP_STORED, ZIP_DEFLATED] = [0, 8];
const LIMITS = { maxBytes: 1000, maxEntries: 5 };
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-unpack-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

let zipWriter: ChildProcessByStdio<Writable, Readable, null>;

beforeAll(() => {
  const program = `
import json, sys, zipfile
for line in sys.stdin:
    path, method, entries = json.loads(line)
    with zipfile.ZipFile(path, 'w') as z:
        for e in entries:
            info = zipfile.ZipInfo(e['name'])
            info.create_system = 3
            info.external_attr = e.get('mode', 0o100644) << 16
            info.compress_type = method
            z.writestr(info, e.get('content', '') * e.get('times', 1))
    print(flush=True)
`;
  zipWriter = spawn('python3', ['-W', 'ignore', '-c', program], { stdio: ['pipe', 'pipe', 'inherit'] });
});
afterAll(async () => {
  const ended = once(zipWriter, 'exit');
  zipWriter.stdin.end();
  await ended;
});

/**
 * Makes a zip with these entries by Python's own writer, which accepts any name. `times` repeats the content.
 */
async function zip(
  entries: readonly { name: string; content?: string; times?: number; mode?: number }[],
  compress = false,
): Promise<string> {
  const path = join(directory, 'a.zip');
  const written = once(zipWriter.stdout, 'data');
  zipWriter.stdin.write(`${JSON.stringify([path, compress ? ZIP_DEFLATED : ZIP_STORED, entries])}\n`);
  await written;
  return path;
}

async function tarGz(entries: { header: Parameters<tar.Pack['entry']>[0]; content?: string }[]): Promise<string> {
  const pack = tar.pack();
  for (const { header, content } of entries) pack.entry(header, content ?? '');
  pack.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of pack) chunks.push(chunk as Buffer);
  const path = join(directory, 'a.tar.gz');
  await writeFile(path, gzipSync(Buffer.concat(chunks)));
  return path;
}

async function target(): Promise<string> {
  return await mkdtemp(join(directory, 'target-'));
}

describe('unpack', () => {
  it('unpack extracts a zip with its directories and keeps the executable bits', async () => {
    const into = await target();
    await unpack(
      await zip([
        { name: 'a/b.txt', content: 'hi' },
        { name: 'run', content: '#!', mode: 0o100755 },
      ]),
      into,
      LIMITS,
    );
    expect(await readFile(join(into, 'a/b.txt'), 'utf8')).toBe('hi');
    expect((await stat(join(into, 'run'))).mode & 0o777).toBe(0o755);
  });

  it('unpack extracts a tar.gz', async () => {
    const into = await target();
    await unpack(
      await tarGz([{ header: { name: 'd', type: 'directory' } }, { header: { name: 'd/x' }, content: 'y' }]),
      into,
      LIMITS,
    );
    expect(await readFile(join(into, 'd/x'), 'utf8')).toBe('y');
  });

  it.each(['../out', '/abs', 'a/../../out'])('unpack refuses a zip entry named %s', async name => {
    await expect(unpack(await zip([{ name, content: 'x' }]), await target(), LIMITS)).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    await expect(stat(join(directory, 'out'))).rejects.toThrow();
  });

  it.each(['../out', '/abs'])('unpack refuses a tar entry named %s', async name => {
    const archive = await tarGz([{ header: { name }, content: 'x' }]);
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow('leads out of its directory');
  });

  it('unpack refuses links in a zip', async () => {
    const archive = await zip([{ name: 'link', content: '/etc/passwd', mode: 0o120777 }]);
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow('neither a file nor a directory');
  });

  it.each(['symlink', 'link'] as const)('unpack refuses a %s in a tar', async type => {
    const archive = await tarGz([{ header: { name: 'l', type, linkname: '/etc/passwd' } }]);
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow(`is a ${type}`);
  });

  it('unpack refuses more bytes than allowed, and counts the real bytes instead of the declared size', async () => {
    const archive = await zip([{ name: 'big', content: 'x'.repeat(1001) }]);
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow('larger than 1000 bytes');
  });

  it('unpack refuses more entries than allowed', async () => {
    const archive = await zip(Array.from({ length: 6 }, (_, index) => ({ name: `f${index}` })));
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow('more than 5 entries');
  });

  it('unpack counts the directories that a name creates', async () => {
    await expect(unpack(await zip([{ name: 'a/b/c/d/e/f' }]), await target(), LIMITS)).rejects.toThrow(
      'more than 5 entries',
    );
    await unpack(await zip([{ name: 'a/b/c/d' }, { name: 'a/' }]), await target(), LIMITS);
  });

  it.each([
    [`${'d/'.repeat(129)}x`, 'is more than 128 directories deep'],
    [`${'x/'.repeat(600)}x`, 'has more than 1024 characters'],
    // The non-ASCII character makes the names in a zip UTF-8.
    ['é\nb', 'has a control character in its name'],
    ['é\x1b[31m', 'has a control character in its name'],
    ['a\u0085b', 'has a control character in its name'],
  ])('unpack refuses the name %j', async (name, why) => {
    const many = { maxBytes: 1000, maxEntries: 10_000 };
    await expect(unpack(await zip([{ name }]), await target(), many)).rejects.toThrow(why);
    await expect(unpack(await tarGz([{ header: { name } }]), await target(), many)).rejects.toThrow(why);
  });

  it('unpack sets no set-user-ID bit, whatever the archive says', async () => {
    const into = await target();
    const archive = await tarGz([
      { header: { name: 'd', type: 'directory', mode: 0o7777, uid: 1234 } },
      { header: { name: 'd/su', mode: 0o6755, uid: 1234 }, content: '#!' },
    ]);
    await unpack(archive, into, LIMITS);
    await unpack(await zip([{ name: 'su', mode: 0o106755 }]), into, LIMITS);
    const modes = await Promise.all(
      ['d', 'd/su', 'su'].map(async name => (await stat(join(into, name))).mode & 0o7000),
    );
    expect(modes).toEqual([0, 0, 0]);
    expect((await stat(join(into, 'd/su'))).uid).toBe(process.geteuid?.());
  });

  it.each(['block-device', 'character-device', 'fifo'] as const)('unpack refuses a %s in a tar', async type => {
    const archive = await tarGz([{ header: { name: 'x', type } }]);
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow(`is a ${type}`);
  });

  it.each([
    ['a device', 0o020644],
    ['a socket', 0o140644],
    ['a pipe', 0o010644],
  ])('unpack refuses %s in a zip', async (_, mode) => {
    await expect(unpack(await zip([{ name: 'x', mode }]), await target(), LIMITS)).rejects.toThrow(
      'neither a file nor a directory',
    );
  });

  it('unpack refuses a tar whose skipped entries exceed the limit of bytes', async () => {
    // A directory has no content, but this header announces some.
    const header = Buffer.alloc(512);
    header.write('d/');
    header.write('0000755\0', 100);
    const bytes = 4 * 1024 * 1024;
    header.write(`${bytes.toString(8).padStart(11, '0')}\0`, 124);
    header.write('5', 156);
    header.write('ustar\x0000', 257);
    header.fill(' ', 148, 156);
    const sum = header.reduce((all, byte) => all + byte, 0);
    header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    const path = join(directory, 'skipped.tar.gz');
    await writeFile(path, gzipSync(Buffer.concat([header, Buffer.alloc(bytes)])));
    await expect(unpack(path, await target(), LIMITS)).rejects.toThrow('larger than 1000 bytes');
  });

  it('unpack refuses two entries with the same name', async () => {
    const archive = await tarGz([
      { header: { name: 'x' }, content: '1' },
      { header: { name: 'x' }, content: '2' },
    ]);
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow('the archive is refused: "x" is in it twice');
  });

  it('unpack refuses a file that is not an archive', async () => {
    const file = join(directory, 'x');
    await writeFile(file, 'hello');
    await expect(unpack(file, await target(), LIMITS)).rejects.toThrow(
      'it is no archive that can be unpacked: expected a zip or a tar.gz archive',
    );
  });

  it.each([
    ['', 'it is empty: expected a zip or a tar.gz archive'],
    ['\xfd7zXZ\0rest', 'a tar.xz archive cannot be unpacked: expected a zip or a tar.gz archive'],
    ['BZh91AY', 'a tar.bz2 archive cannot be unpacked: expected a zip or a tar.gz archive'],
  ])('unpack names the format of a file that begins with %j, and the accepted formats', async (content, message) => {
    const file = join(directory, 'x');
    await writeFile(file, content, 'latin1');
    await expect(unpack(file, await target(), LIMITS)).rejects.toThrow(message);
  });

  it('unpack refuses an archive with a file and a directory of the same name, and the error has no host path', async () => {
    const archive = await zip([
      { name: 'a', content: '1' },
      { name: 'a/b', content: '2' },
    ]);
    await expect(unpack(archive, await target(), LIMITS)).rejects.toThrow(
      'the archive is refused: "a/b" is in it as a file and as a directory',
    );
    const long = unpack(await zip([{ name: 'x'.repeat(300) }]), await target(), LIMITS);
    await expect(long).rejects.toThrow(/^the archive cannot be read: ENAMETOOLONG: name too long, open$/);
  });

  /** Offsets in the central directory, counted from its signature (APPNOTE 4.3.12). */
  it.each([
    ['size that is too small', 24, 3],
    ['size that is too large', 24, 200],
    ['checksum that is wrong', 16, 1],
    ['compressed size that is too small', 20, 3],
    ['compression that is unknown', 10, 99],
    ['flag of encryption', 8, 1],
  ])('unpack refuses a zip whose entry has a %s', async (_, offset, value) => {
    for (const compress of [false, true]) {
      const file = await zip([{ name: 'a', content: 'x'.repeat(100) }], compress);
      const bytes = await readFile(file);
      bytes[bytes.indexOf('PK\x01\x02', 0, 'latin1') + offset] = value;
      await writeFile(file, bytes);
      await expect(unpack(file, await target(), LIMITS)).rejects.toMatchObject({ code: 'failed_precondition' });
    }
  });

  it('unpack refuses an archive with a changed byte with an error, or extracts it completely', async () => {
    const good = await readFile(
      await zip(
        [
          { name: 'd/a', content: 'x'.repeat(50) },
          { name: 'b', content: 'y' },
        ],
        true,
      ),
    );
    const file = join(directory, 'changed');
    for (let at = 0; at < good.length; at += 1) {
      const bytes = Buffer.from(good);
      bytes[at] = (bytes[at] as number) ^ (1 << (at % 8));
      await writeFile(file, bytes);
      const error = await unpack(file, await target(), LIMITS).then(
        () => null,
        (thrown: unknown) => thrown,
      );
      if (error !== null) expect(error).toMatchObject({ code: 'failed_precondition' });
    }
  });

  it('unpack refuses a broken archive with the reason', async () => {
    const file = join(directory, 'x');
    await writeFile(file, Buffer.concat([Buffer.from([0x1f, 0x8b]), Buffer.from('broken')]));
    await expect(unpack(file, await target(), LIMITS)).rejects.toThrow('cannot be read');
  });

  describe('a refused zip', () => {
    /** Returns how many descriptors of this process have `archive` open. */
    const openings = (archive: string) =>
      readdirSync('/proc/self/fd').filter(fd => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`) === archive;
        } catch {
          return false;
        }
      }).length;
    const link = (content: string) => ({ name: 'l', content, mode: 0o120777 });
    // The content is longer than a stream reads ahead.
    const large = 'x'.repeat(300_000);

    it.each([
      ['for a name', [{ name: 'é\nb', content: large }]],
      ['for too many entries', Array.from({ length: 6 }, (_, index) => ({ name: `f${index}`, content: large }))],
      [
        'for a file that is a directory too',
        [
          { name: 'a', content: 'x' },
          { name: 'a/b', content: large },
        ],
      ],
      [
        'for a file that is in it twice',
        [
          { name: 'a', content: 'x' },
          { name: 'a', content: large },
        ],
      ],
      ['for its bytes', [{ name: 'a', content: `${large}${large}` }]],
      ['for a link with a target that is too long', [link(large)]],
      ['for a link that leads out', [link('..')]],
      ['for a link with a bad name', [{ ...link(large), name: '../l' }]],
      ['for a link that is in it twice', [link('a'), link('a')]],
    ])('a refused zip is closed, so that its removal frees the space: %s', async (_title, entries) => {
      for (const compress of [false, true]) {
        const archive = await zip(entries, compress);
        const kept = { maxBytes: 500_000, maxEntries: 5, links: 'kept' as const };
        await expect(unpack(archive, await target(), kept)).rejects.toMatchObject({ code: 'failed_precondition' });
        await vi.waitFor(() => expect(openings(archive)).toBe(0));
      }
    });

    it('a zip that is refused for its checksum or its method is closed, so that its removal frees the space', async () => {
      for (const [offset, value] of [
        [16, 1],
        [10, 99],
        [42, 9],
      ] as const) {
        const archive = await zip([{ name: 'a', content: large }], true);
        const bytes = await readFile(archive);
        bytes[bytes.indexOf('PK\x01\x02', 0, 'latin1') + offset] = value;
        await writeFile(archive, bytes);
        await expect(unpack(archive, await target(), { ...LIMITS, maxBytes: 1e6 })).rejects.toThrow();
        await vi.waitFor(() => expect(openings(archive)).toBe(0));
      }
    });
  });

  describe('kept links', () => {
    const KEPT = { ...LIMITS, links: 'kept' as const };
    const linked = async (...entries: (readonly [name: string, to: string | null])[]) => {
      const pack = tar.pack();
      for (const [name, to] of entries) {
        if (to === null) pack.entry({ name }, 'x');
        else pack.entry({ name, type: 'symlink', linkname: to });
      }
      pack.finalize();
      const chunks: Buffer[] = [];
      for await (const chunk of pack) chunks.push(chunk as Buffer);
      const file = join(directory, 'linked.tgz');
      await writeFile(file, gzipSync(Buffer.concat(chunks)));
      return file;
    };

    it('unpack creates links to entries of the archive when links are kept, and refuses links by default', async () => {
      const file = await linked(['lib/real', null], ['lib/up', '../top'], ['top', 'lib/real'], ['gone', './nothing']);
      const to = await target();
      await unpack(file, to, KEPT);
      expect(await readlink(join(to, 'lib/up'))).toBe('../top');
      expect(await readFile(join(to, 'lib/up'), 'utf8')).toBe('x');
      expect(await readlink(join(to, 'gone'))).toBe('./nothing');
      await expect(unpack(file, await target(), LIMITS)).rejects.toThrow('is a symlink');
    });

    it.each([
      ['to the parent', [['l', '..']]],
      ['to an absolute path', [['l', '/etc']]],
      ['from below', [['a/b/l', '../../../x']]],
      ['to nothing', [['l', '']]],
      ['upwards after a name', [['a/l', 'b/../c']]],
      ['upwards after a name of dots only', [['a/l', '.../../x']]],
      ['upwards after many names of dots only', [['x', '.../..../.../..../../..']]],
      ['further up than its depth, in several ways', [['a/b/l', './..//.././../x']]],
      [
        'through a link whose name is of dots only',
        [
          ['.../....', '..'],
          ['x', '.../..../.../..../.../..../../..'],
        ],
      ],
      [
        'through another link',
        [
          ['d/up', '..'],
          ['l', 'd/up/../../x'],
        ],
      ],
      [
        'as the directory of a file',
        [
          ['d', 'other'],
          ['d/file', null],
        ],
      ],
      [
        'as the directory of a file before it',
        [
          ['d/file', null],
          ['d', 'other'],
        ],
      ],
      [
        'twice',
        [
          ['l', 'a'],
          ['l', 'b'],
        ],
      ],
      [
        'in place of a file',
        [
          ['l', null],
          ['l', 'a'],
        ],
      ],
    ] as const)('unpack refuses links that lead out and writes through none: %s', async (_title, entries) => {
      const to = await target();
      const file = await linked(...entries);
      await expect(unpack(file, to, KEPT)).rejects.toMatchObject({ code: 'failed_precondition' });
    });

    it('kept links lead nowhere else, whatever names and links they contain', async () => {
      const name = fc.constantFrom('...', '....', '.a', 'b');
      const links = fc.array(
        fc.tuple(
          fc.array(name, { minLength: 1, maxLength: 3 }),
          fc.array(fc.oneof(name, fc.constantFrom('.', '..', '')), { minLength: 1, maxLength: 6 }),
        ),
        { minLength: 1, maxLength: 4 },
      );
      const many = { maxBytes: 1000, maxEntries: 100, links: 'kept' as const };
      let made = 0;
      await fc.assert(
        fc.asyncProperty(links, async all => {
          const to = await realpath(await target());
          const paths = all.map(([path, leads]) => [path.join('/'), leads.join('/')] as const);
          const error = await unpack(await linked(...paths), to, many).catch((thrown: unknown) => thrown);
          if (error !== undefined) return void expect(error).toMatchObject({ code: 'failed_precondition' });
          for (const [path] of paths) {
            // A link to a missing target, or in a circle, counts as inside of `to`.
            const found = await realpath(join(to, path)).catch(() => to);
            expect(`${found}/`.startsWith(`${to}/`)).toBe(true);
            made += 1;
          }
        }),
        { numRuns: 150 },
      );
      expect(made).toBeGreaterThan(10);
    });

    it('kept links may go up from their directory and then down', async () => {
      const to = await target();
      const file = await linked(['.../real', null], ['a/.b/l', './.././..//.../real'], ['a/root', '..']);
      await unpack(file, to, { ...KEPT, maxEntries: 10 });
      expect(await readFile(join(to, 'a/.b/l'), 'utf8')).toBe('x');
      expect(await readFile(join(to, 'a/root/.../real'), 'utf8')).toBe('x');
    });

    it('a link whose target is longer than a path may be is refused, in a tar as in a zip', async () => {
      const to = 'a/'.repeat(2049);
      const refused = '"l" is a link to more than 4096 characters';
      await expect(unpack(await linked(['l', to]), await target(), { ...KEPT, maxBytes: 1e6 })).rejects.toThrow(
        refused,
      );
      const archive = await zip([{ name: 'l', content: to, mode: 0o120777 }]);
      await expect(unpack(archive, await target(), { ...KEPT, maxBytes: 1e6 })).rejects.toThrow(refused);
    });

    it('unpack creates the links of a zip, which are entries of a separate type', async () => {
      const link = (content: string) => ({ name: 'link', content, mode: 0o120777 });
      const to = await target();
      await unpack(await zip([{ name: 'real', content: 'x' }, link('real')]), to, KEPT);
      expect(await readlink(join(to, 'link'))).toBe('real');
      await expect(unpack(await zip([link('../../out')]), await target(), KEPT)).rejects.toThrow(
        'leads out of the archive',
      );
    });
  });
});

describe('an archive that unpacks to more than 200 times its size', () => {
  const limits = { maxBytes: 1_000_000_000, maxEntries: 5 };
  const bytes = 70 * 1024 * 1024;

  it('a zip that unpacks to more than 200 times its size is refused and leaves nothing', async () => {
    const into = await target();
    await expect(unpack(await zip([{ name: 'a', content: '0', times: bytes }], true), into, limits)).rejects.toThrow(
      '200 times its size',
    );
  });

  it('a tar.gz that unpacks to more than 200 times its size is refused', async () => {
    const archive = await tarGz([{ header: { name: 'a' }, content: '0'.repeat(bytes) }]);
    await expect(unpack(archive, await target(), limits)).rejects.toThrow('200 times its size');
  });

  it('an archive that unpacks to less than 64 MiB is accepted, whatever its ratio', async () => {
    const archive = await tarGz([{ header: { name: 'a' }, content: '0'.repeat(60 * 1024 * 1024) }]);
    await unpack(archive, await target(), limits);
  });
});
