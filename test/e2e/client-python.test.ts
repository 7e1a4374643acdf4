import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { programOfPage, startLossyProxy } from './client-bed.ts';

const PROJECT = join(ROOT, 'clients/python');
/** Timeout of the installation from a package index, dependencies included. */
const INSTALL_MS = 300_000;
/** Timeout of a program that uses all functions of the client in one process. */
const LIVE_MS = 180_000;

describeWith(['pypi'], 'the client for Python', () => {
  let scratch: string;
  let python: string;
  let runtime: string;

  beforeAll(async () => {
    scratch = mkdtempSync(join(tmpdir(), 'rookery-client-'));
    const newest = (await findInterpreters()).at(-1);
    if (newest === undefined) throw new Error('no Python interpreter is here');
    runtime = `python${newest.version}`;
    python = join(scratch, 'venv/bin/python');
    await succeed(newest.path, ['-m', 'venv', join(scratch, 'venv')]);
    await succeed(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', 'build']);
    await succeed(python, ['-m', 'build', '--outdir', join(scratch, 'dist'), PROJECT]);
    const wheel = readdirSync(join(scratch, 'dist')).find(name => name.endsWith('.whl')) ?? '';
    const install = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
    await succeed(python, [...install, join(scratch, 'dist', wheel)]);
  }, INSTALL_MS);
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));

  test('the wheel contains the licence', () => {
    const modules = join(scratch, 'venv/lib');
    const licences = readdirSync(modules, { recursive: true, encoding: 'utf8' }).filter(name =>
      /\/rookery-[^/]*\.dist-info\/.*LICENSE$/.test(name),
    );
    expect(licences.map(name => readFileSync(join(modules, name), 'utf8'))).toEqual([
      readFileSync(join(ROOT, 'LICENSE'), 'utf8'),
    ]);
  });

  test('the wheel contains the types, and the readme as its description, and no tests', () => {
    const library = join(scratch, 'venv/lib');
    const files = readdirSync(library, { recursive: true, encoding: 'utf8' }).filter(name =>
      /\/site-packages\/rookery(-[^/]*\.dist-info)?\//.test(name),
    );
    expect(files.filter(name => /test/.test(name))).toEqual([]);
    expect(files.filter(name => name.endsWith('/rookery/py.typed'))).toHaveLength(1);
    const metadata = readFileSync(join(library, files.find(name => name.endsWith('/METADATA')) ?? ''), 'utf8');
    expect(metadata).toContain(readFileSync(join(PROJECT, 'README.md'), 'utf8').trim());
    for (const line of ['License-Expression: Apache-2.0', 'Description-Content-Type: text/markdown']) {
      expect(metadata).toContain(`\n${line}\n`);
    }
  });

  test('the wire format is written and read correctly without a service', async () => {
    await succeed(python, ['-B', join(PROJECT, 'tests/test_wire.py')]);
  });

  test('handles, get_or_create and map work without a service', async () => {
    await succeed(python, ['-B', join(PROJECT, 'tests/test_handles.py')]);
  });

  test(
    'the wheel of `python -m build` works with a service, with and without await',
    async () => {
      await using served = await Served.start({ args: [STOP_AGENTS] });
      const proxy = await startLossyProxy(served.frontendUrl);
      try {
        await succeed(python, ['-B', join(PROJECT, 'tests/live.py')], {
          ROOKERY_ADDRESS: served.frontendUrl,
          ROOKERY_LOSSY_ADDRESS: proxy.url,
          ROOKERY_TEST_RUNTIME: runtime,
        });
        expect(proxy.lost()).toBe(1);

        // Decorated functions upload their whole directory.
        const pages = join(scratch, 'pages');
        cpSync(join(ROOT, 'examples'), join(pages, 'examples'), { recursive: true });
        const env = { ROOKERY_ADDRESS: served.frontendUrl };
        const programs = [['hello.py'], ['map.py'], ['square.py'], ['sandbox.py'], ['readme.py', 'README.md']] as const;
        for (const [file, page] of programs) {
          const { source, prints } = programOfPage(file, page);
          writeFileSync(join(pages, file), source);
          expect(await run(python, ['-B', file], { cwd: pages, capture: true, env })).toEqual({
            code: 0,
            output: prints,
          });
        }
      } finally {
        proxy.close();
      }
    },
    LIVE_MS,
  );
});

async function succeed(program: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { code, output } = await run(program, args, { capture: true, env });
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} ended with code ${code}:\n${output}`);
}
