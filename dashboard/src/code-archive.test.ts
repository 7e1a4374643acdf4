import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import tar from 'tar-stream';
import { expect, it } from 'vitest';
import { type CodeFile, packFiles } from './code-archive.ts';

const file = (path: string, text: string): CodeFile => ({ path, content: new Blob([text]) });

/** Returns the mode and the text of each file of an archive, by its path. */
async function unpacked(archive: Uint8Array): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  const extract = Readable.from([Buffer.from(archive)])
    .pipe(createGunzip())
    .pipe(tar.extract());
  for await (const entry of extract) {
    const chunks: Buffer[] = [];
    for await (const chunk of entry) chunks.push(chunk as Buffer);
    found[entry.header.name] = `${entry.header.mode?.toString(8)} ${Buffer.concat(chunks)}`;
  }
  return found;
}

it('an archive has the files with their paths of any length, and programs are executable', async () => {
  const long = `${'directory-é/'.repeat(20)}module.py`;
  const files = [file('run.sh', '#!/bin/sh\n'), file(long, 'x'.repeat(512)), file('program', '\x7fELF'), file('a', '')];
  expect(await unpacked(await packFiles(files))).toEqual({
    'run.sh': '755 #!/bin/sh\n',
    [long]: `644 ${'x'.repeat(512)}`,
    program: '755 \x7fELF',
    a: '644 ',
  });
});

it('an archive does not depend on the order of the files, and omits what belongs to one machine', async () => {
  const files = [file('main.py', 'a'), file('b/c.py', 'b')];
  const others = [file('node_modules/x.js', ''), file('b/__pycache__/c.pyc', ''), file('.git/HEAD', '')];
  expect(await packFiles([...others, ...files.toReversed()])).toEqual(await packFiles(files));
});

it('a directory with an ignore file, and one without files, is refused', async () => {
  await expect(packFiles([file('.rookeryignore', '*'), file('a', '')])).rejects.toThrow('has a .rookeryignore');
  await expect(packFiles([file('.git/HEAD', '')])).rejects.toThrow('has no file to send');
});
