import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type PackOptions, packDirectory } from './code-archive.ts';

let work: string;
let code: string;
let packs = 0;

beforeEach(async () => {
  work = await mkdtemp(join(tmpdir(), 'rookery-pack-'));
  code = join(work, 'code');
});
afterEach(() => rm(work, { recursive: true, force: true }));

async function files(contents: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, content] of Object.entries(contents)) {
    await mkdir(dirname(join(code, name)), { recursive: true });
    await writeFile(join(code, name), content);
  }
}

async function packed(links: PackOptions['links'] = 'kept', more: Partial<PackOptions> = {}) {
  const archive = join(work, `${packs++}.tar.gz`);
  const facts = await packDirectory(code, archive, { flag: '--code', links, ...more });
  const listed = execFileSync('tar', ['-tzf', archive], { encoding: 'utf8' });
  return { ...facts, archive, names: listed.split('\n').filter(name => name !== '' && !name.endsWith('/')) };
}

describe('the archive of a directory', () => {
  test('an archive has the same bytes for the same files, whatever their modification times', async () => {
    await files({ 'b.py': 'b', 'a/x': 'x', 'a.py': 'a' });
    const first = await packed();
    await utimes(join(code, 'b.py'), 1, 1);
    const second = await packed();
    expect(await readFile(second.archive)).toEqual(await readFile(first.archive));
    expect(second.sha256).toBe(first.sha256);
    await chmod(join(code, 'b.py'), 0o755);
    expect((await packed()).sha256).not.toBe(first.sha256);
  });

  test("an archive leaves out files of the client's machine such as virtual environments and caches", async () => {
    const kept = { 'app.py': '', 'sub/mod.py': '', '.env.example': '' };
    const left = { '.venv/bin/x': '', 'node_modules/y/z.js': '', '.git/HEAD': '', 'sub/__pycache__/m.pyc': '' };
    await files({ ...kept, ...left });
    // Vim and Emacs create these files while a file is open.
    await files({ 'app.py~': '', 'sub/.mod.py.swp': '', '#app.py#': '' });
    await symlink('me@laptop.1234:1', join(code, '.#app.py'));
    expect((await packed()).names.sort()).toEqual(Object.keys(kept).sort());
  });

  test('an archive leaves out the deployed file, and keeps other files of the same name', async () => {
    const contents = { '.rookeryignore': '!rookery.yaml', 'rookery.yaml': '', 'sub/rookery.yaml': '', 'app.py': '' };
    await files(contents);
    const deployed = await packed('kept', { leftOut: join(code, 'rookery.yaml') });
    expect(deployed.names).toEqual(['app.py', 'sub/rookery.yaml']);
    await files({ 'rookery.yaml': 'env: changed' });
    expect((await packed('kept', { leftOut: join(code, 'rookery.yaml') })).sha256).toBe(deployed.sha256);
  });

  test('an archive leaves out files that .rookeryignore names, with the rules of .gitignore', async () => {
    await files({
      '.rookeryignore': '# secrets\n*.key\n!public.key\n/build\nlogs/\ndocs/**/*.png\n',
      ...{ 'a.key': '', 'public.key': '', 'build/x': '', 'sub/build/kept': '', 'logs/x': '', 'sub/logs/y': '' },
      ...{ 'docs/deep/er/a.png': '', 'docs/deep/a.md': '', 'app.py': '' },
    });
    expect((await packed()).names.sort()).toEqual(['app.py', 'docs/deep/a.md', 'public.key', 'sub/build/kept'].sort());
  });

  test('an archive follows the nearest .rookeryignore, with paths relative to its directory', async () => {
    await files({
      '.rookeryignore': '*.log\n',
      ...{ 'x.log': '', 'sub/.rookeryignore': '!keep.log\n/only\n' },
      ...{ 'sub/keep.log': '', 'sub/other.log': '', 'sub/only': '', 'sub/deep/only': '' },
    });
    expect((await packed()).names.sort()).toEqual(['sub/deep/only', 'sub/keep.log']);
  });

  test('an archive keeps links to targets inside of the directory, and its report names a link to a target outside', async () => {
    await files({ 'lib/real.py': 'x' });
    await symlink('lib/real.py', join(code, 'link.py'));
    await symlink('../lib', join(code, 'lib', 'again'));
    const { archive } = await packed();
    const listed = execFileSync('tar', ['-tvzf', archive], { encoding: 'utf8' });
    expect(listed).toMatch(/link\.py -> lib\/real\.py/);
    await symlink('../../outside', join(code, 'lib', 'out'));
    await expect(packed()).rejects.toThrow(/^--code: lib\/out is a link to \.\.\/\.\.\/outside, which is not in /);
    expect((await packed('followed')).names.sort()).toEqual(['lib/real.py', 'link.py']);
  });

  test('an archive of a job follows links to directories, and leaves out a link to a directory above itself', async () => {
    await files({ 'main.py': 'x', '../shared/lib/mod.py': 'y' });
    await symlink('../shared', join(code, 'shared'));
    await symlink('..', join(work, 'shared', 'lib', 'up'));
    await symlink('../../code', join(work, 'shared', 'lib', 'around'));
    await symlink('.', join(code, 'itself'));
    expect((await packed('followed')).names.sort()).toEqual(['main.py', 'shared/lib/mod.py']);
  });

  test('the report of an archive names dangling links and entries that are neither file nor directory', async () => {
    await files({ 'app.py': 'x' });
    await symlink('gone', join(code, 'dangling'));
    execFileSync('mkfifo', [join(code, 'pipe')]);
    const job = await packed('followed');
    expect(job.names).toEqual(['app.py']);
    expect(job.warnings).toEqual([
      '--code: dangling is a link that leads nowhere, and is left out.',
      '--code: pipe is neither a file nor a directory, and is left out.',
    ]);
    const agent = await packed('kept');
    expect(agent.names).toEqual(['app.py', 'dangling']);
    expect(agent.warnings[0]).toBe('--code: dangling is a link to gone, which does not exist.');
  });

  test('the report of an archive names a path that is not UTF-8, unless it is ignored', async () => {
    await files({ 'sub/app.py': 'x' });
    await mkdir(Buffer.concat([Buffer.from(join(code, 'sub/caf')), Buffer.from([0xe9])]));
    for (const links of ['kept', 'followed'] as const) {
      await expect(packed(links)).rejects.toThrow(/^--code: the name of sub\/caf\ufffd is not UTF-8: rename it/);
    }
    await files({ '.rookeryignore': 'caf*\n', 'sub/\ufffd.py': 'x' });
    expect((await packed()).names.sort()).toEqual(['sub/app.py', expect.stringMatching(/^sub\//)]);
  });

  test('packing fails with a message that names the flag when a system call fails', async () => {
    await files({ 'app.py': 'x' });
    const nowhere = packDirectory(code, join(work, 'nowhere', 'a'), { flag: '--code', links: 'kept' });
    await expect(nowhere).rejects.toThrow(/^--code: .*code cannot be packed: .*nowhere\/a: it does not exist/);
  });
});
