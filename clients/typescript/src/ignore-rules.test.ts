import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IGNORE_FILE, packDirectory } from './code-archive.ts';

interface Case {
  readonly name: string;
  /** Content of the ignore file of each directory. */
  readonly rules: Readonly<Record<string, string>>;
  readonly files: readonly string[];
}

const ROOT = join(import.meta.dirname, '../../..');
const CORPUS = JSON.parse(await readFile(join(ROOT, 'test/fixtures/ignore-corpus.json'), 'utf8')) as readonly Case[];
/** Packs directories with the Python client's packer alone, then lists the files of all archives as JSON. */
const PYTHON = `
import json, pathlib, sys, tarfile, types
package = types.ModuleType("rookery")
package.__path__ = [sys.argv[1]]
sys.modules["rookery"] = package
from rookery._pack import pack
work = pathlib.Path(sys.argv[2])
for code in work.glob("*/code"):
    pack(code, code.parent / "python.tar.gz", False)
print(json.dumps({str(archive.relative_to(work)): [member.name for member in tarfile.open(archive) if member.isfile()]
                  for archive in work.glob("*/*.tar.gz")}))
`;

let work: string;
/** Files of each archive, by its path below `work` (case number and packer). */
let packed: Record<string, readonly string[]>;

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), 'rookery-ignore-'));
  execFileSync('git', ['init', '-q', join(work, 'repository')]);
  for (const [at, { rules, files }] of CORPUS.entries()) {
    const code = join(work, `${at}`, 'code');
    const contents = Object.entries(rules).map(([below, text]) => [join(below, IGNORE_FILE), text] as const);
    for (const [path, text] of [...files.map(path => [path, ''] as const), ...contents]) {
      await mkdir(dirname(join(code, path)), { recursive: true });
      await writeFile(join(code, path), text);
    }
    await packDirectory(code, join(work, `${at}`, 'typescript.tar.gz'), { flag: 'code', links: 'kept' });
  }
  const python = ['-c', PYTHON, join(ROOT, 'clients/python/src/rookery'), work];
  packed = JSON.parse(execFileSync('python3', python, { encoding: 'utf8' })) as typeof packed;
});
afterAll(() => rm(work, { recursive: true, force: true }));

function filesOfGit(at: number): readonly string[] {
  const place = [`--git-dir=${join(work, 'repository', '.git')}`, `--work-tree=${join(work, `${at}`, 'code')}`];
  const list = ['-c', 'core.ignorecase=false', 'ls-files', '-oz', `--exclude-per-directory=${IGNORE_FILE}`];
  const text = execFileSync('git', [...place, ...list], { cwd: join(work, `${at}`, 'code'), encoding: 'utf8' });
  return text.split('\0').filter(name => name !== '' && !name.endsWith(IGNORE_FILE));
}

describe('every packer selects the same files as git', () => {
  test.each(CORPUS.map(({ name }, at) => ({ name, at })))(
    'every packer selects the same files as git when $name',
    ({ at }) => {
      const selected = [...filesOfGit(at)].sort();
      for (const packer of ['typescript', 'python']) {
        expect([...(packed[`${at}/${packer}.tar.gz`] ?? ['no archive'])].sort(), packer).toEqual(selected);
      }
    },
  );
});
