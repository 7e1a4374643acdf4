import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { openPath } from '../lib/opened-path.ts';
import { type Manifest, readNodeManifest, readPythonManifest } from './manifest.ts';

const made: string[] = [];
afterEach(() => {
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true });
});

function directoryOf(files: Readonly<Record<string, string>>): string {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-manifest-'));
  made.push(directory);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), text);
  }
  return directory;
}

async function read(reader: typeof readPythonManifest, directory: string): Promise<Manifest | null> {
  const opened = await openPath(directory);
  if (opened === null) throw new Error('it does not exist');
  try {
    return await reader(opened);
  } finally {
    await opened.close();
  }
}
const python = (files: Readonly<Record<string, string>>) => read(readPythonManifest, directoryOf(files));
const node = (files: Readonly<Record<string, string>>) => read(readNodeManifest, directoryOf(files));
const names = (manifest: Manifest | null) => Object.keys(manifest?.files ?? {}).sort();

const PROJECT = '[project]\nname = "x"\ndependencies = ["six"]\n';

describe('manifests of Python code', () => {
  test.each([
    [{ 'requirements.txt': 'six' }, ['requirements.txt']],
    [{ 'requirements.txt': 'six', 'pyproject.toml': PROJECT }, ['requirements.txt']],
    [{ 'requirements.txt': 'six', 'pyproject.toml': PROJECT, 'uv.lock': '' }, ['pyproject.toml', 'uv.lock']],
    [{ 'pyproject.toml': PROJECT, 'poetry.lock': '' }, ['poetry.lock', 'pyproject.toml']],
    [{ 'pyproject.toml': PROJECT }, ['pyproject.toml']],
    [{ 'pyproject.toml': '[tool.ruff]\nline-length = 100\n' }, []],
    [{ 'requirements.txt': '# nothing\n\n--index-url https://example.com\n' }, []],
    [{ 'uv.lock': '' }, []],
    [{}, []],
  ])('dependencies of a project with %j are read from %j', async (files, expected) => {
    expect(names(await python(files as Record<string, string>))).toEqual(expected);
  });

  test('files that a requirements file names are included, with paths relative to that file', async () => {
    const files = {
      'requirements.txt': 'six # -r none\n-r more/a.txt\n--constraint=more/c.txt',
      'more/a.txt': '-r b.txt',
      'more/b.txt': 'idna',
      'more/c.txt': 'six==1.17.0',
    };
    expect((await python(files))?.files).toEqual(files);
  });

  test.each([
    '-e .',
    '--editable ./x',
    './wheels/x.whl',
    '/srv/x.whl',
    '../x',
    '~/x',
    'file:x',
    'x @ file:///srv/x',
    '-r ../other.txt',
    '-r /etc/passwd',
  ])('the line %s is refused because it is a path', async line => {
    await expect(python({ 'requirements.txt': `six\n${line}\n` })).rejects.toThrow(
      `requirements.txt: "${line}" is a path`,
    );
  });

  test.each([
    ['\n\n\ndependencies = ["six"]', true],
    ['[project]\r\n  \tdependencies= ["six"]', true],
    ['[ project.dependencies]\nsix = "*"', true],
    ['[project]\ndynamic = ["dependencies"]', true],
    ['[project]\ndependencies\n= ["six"]', false],
    ['[\nproject.dependencies]', false],
    ['# no dependencies = 1', false],
  ])('a pyproject.toml is searched for dependencies line by line: %j', async (text, asks) => {
    expect(names(await python({ 'pyproject.toml': text }))).toEqual(asks ? ['pyproject.toml'] : []);
  });

  // Each text took minutes when the cost was quadratic in its size. Now each takes less than a second.
  test.each([
    ['pyproject.toml', 'ends of lines', '\n'.repeat(1_000_000)],
    ['pyproject.toml', 'ends of lines of old', '\r'.repeat(1_000_000)],
    ['requirements.txt', 'ends of lines', '\n'.repeat(1_000_000)],
    ['requirements.txt', 'the names of itself', '-r requirements.txt\n'.repeat(200_000)],
    ['requirements.txt', 'comments in one line', `${' #'.repeat(300_000)}\rx`],
  ])('a %s of nothing but %s is read in one pass', async (name, _what, text) => {
    await python({ [name]: text });
  });

  test('a requirements file that names files repeatedly includes each once, and a name longer than a path is refused', async () => {
    const files = {
      'requirements.txt': '-r __proto__\n-r b.txt\n-r requirements.txt\n'.repeat(3),
      'b.txt': '-r b.txt',
    };
    expect(names(await python({ ...files, ['__proto__']: '-r __proto__' }))).toContain('b.txt');
    await expect(python({ 'requirements.txt': `-r ${'a/'.repeat(3000)}b` })).rejects.toThrow(
      'which has 6001 characters, expected at most 4096',
    );
  });

  test('a named requirements file that does not exist is reported', async () => {
    await expect(python({ 'requirements.txt': '-r none.txt' })).rejects.toThrow(
      'requirements.txt names none.txt, and there is no such file beside it',
    );
  });

  test('links to files and directories are not followed', async () => {
    const directory = directoryOf({ 'requirements.txt': '-r inner/host.txt' });
    symlinkSync('/etc', join(directory, 'inner'));
    await expect(read(readPythonManifest, directory)).rejects.toThrow('there is no such file beside it');
    const linked = directoryOf({});
    symlinkSync('/etc/hostname', join(linked, 'requirements.txt'));
    expect(await read(readPythonManifest, linked)).toBeNull();
  });
});

describe('manifests of JavaScript', () => {
  const PACKAGE = '{"dependencies": {"x": "^1"}}';
  test.each([
    [{ 'package.json': PACKAGE, 'package-lock.json': '{}' }, ['package-lock.json', 'package.json']],
    [{ 'package.json': PACKAGE, 'npm-shrinkwrap.json': '{}' }, ['npm-shrinkwrap.json', 'package.json']],
    [{ 'package.json': '{"type": "module", "devDependencies": {"x": "1"}}' }, []],
    [{}, []],
  ])('dependencies of a project with %j are read from %j', async (files, expected) => {
    expect(names(await node(files as Record<string, string>))).toEqual(expected);
  });

  test.each([
    [{ 'package.json': PACKAGE }, 'has no package-lock.json beside it'],
    [{ 'package.json': '{"dependencies": {"x": "file:../x"}}' }, 'package.json: x is a path'],
    [{ 'package.json': '{"dependencies": {"x": "workspace:*"}}' }, 'package.json: x is a path'],
    [{ 'package.json': '{' }, 'package.json: '],
    [{ 'package.json': '[]' }, 'package.json must be an object'],
  ])('the files %j are refused with the message %s', async (files, text) => {
    await expect(node(files as Record<string, string>)).rejects.toThrow(text);
  });
});
