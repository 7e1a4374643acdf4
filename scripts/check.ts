/**
 * Runs all checks that do not execute the product: `npm run check`. All checks run, and any failure sets exit
 * code 1.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { findBadWords } from './check-style.ts';
import { bin, ROOT, run } from './command.ts';
import { findLeaks } from './leaks.ts';
import { findBrokenLinks } from './links.ts';
import { lockfileProblems } from './lockfile.ts';
import { findOtherNative, findStaleNative, missingCompiler } from './native.ts';
import { findStalePictures } from './pictures/age.ts';
import { findOversize } from './size.ts';

interface Check {
  readonly name: string;
  /** Returns the problems as text to print, or `''` if there are none. */
  readonly run: () => Promise<string>;
  /**
   * Returns the reason why the check cannot run on this machine, or `''`. Such a check is named and skipped.
   */
  readonly missing?: () => Promise<string>;
}

/** Python packages that run inside sandboxes. Python 3.6 must be able to read each of them. */
const PYTHON_PACKAGES = ['rookery_build', 'rookery_interpreter', 'rookery_runtime', 'rookery_zygote'].map(
  name => `runtimes/python/${name}`,
);

const checks: readonly Check[] = [
  {
    name: 'format, lint, import rules',
    run: () =>
      tool(bin('biome'), ['ci', '--error-on-warnings', `--colors=${process.stdout.isTTY ? 'force' : 'off'}`, '.']),
  },
  { name: 'types', run: () => tool(bin('tsc'), ['-p', '.']) },
  { name: 'types of the dashboard', run: () => tool(bin('tsc'), ['-p', 'dashboard']) },
  { name: 'dead code', run: () => tool(bin('knip'), ['--no-progress']) },
  {
    name: 'generated files are fresh',
    run: () => tool(process.execPath, ['--import', 'tsx', 'scripts/generate.ts', '--check']),
  },
  { name: 'lockfile is whole', run: async () => lockfileProblems() },
  { name: 'the native program is built from its sources', run: async () => findStaleNative() },
  { name: 'the native program is what its sources give', missing: missingCompiler, run: findOtherNative },
  { name: 'words of comments, titles and logs', run: findBadWords },
  { name: 'size of src/', run: findOversize },
  { name: 'links of the documents', run: findBrokenLinks },
  { name: 'pictures of the documents are fresh', run: findStalePictures },
  { name: 'no path of a machine, no registry host', run: findLeaks },
  {
    name: 'Python 3.6 syntax and library',
    missing: async () => ((await run('vermin', ['--version'], { capture: true })).code === 0 ? '' : NO_VERMIN),
    run: () =>
      tool('vermin', [
        ...['--target=3.6-', '--violations', '--no-tips'],
        ...PYTHON_PACKAGES.filter(path => existsSync(join(ROOT, path))),
      ]),
  },
];

const NO_VERMIN = 'vermin is not installed (pip install vermin)';

async function tool(program: string, args: readonly string[]): Promise<string> {
  const { code, output } = await run(program, args, { capture: true });
  return code === 0 ? '' : output || `${program} ended with code ${code}`;
}

let failed = 0;
for (const check of checks) {
  const missing = (await check.missing?.()) ?? '';
  if (missing !== '') {
    console.log(`skip  ${check.name}: ${missing}`);
    continue;
  }
  const startedAt = performance.now();
  const problem = await check.run();
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  console.log(`${problem === '' ? 'ok  ' : 'FAIL'}  ${check.name} (${seconds} s)`);
  if (problem === '') continue;
  failed += 1;
  console.log(problem.trimEnd());
}
if (failed > 0) {
  console.log(`${failed} of ${checks.length} checks failed`);
  process.exitCode = 1;
}
