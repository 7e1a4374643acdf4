/** `npm run check`: everything that can be said about the code without running it. All checks run; any failure fails. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { bin, ROOT, run } from './command.ts';
import { findLeaks } from './leaks.ts';
import { findBrokenLinks } from './links.ts';
import { lockfileProblems } from './lockfile.ts';
import { findOtherNative, findStaleNative, missingCompiler } from './native.ts';

interface Check {
  readonly name: string;
  /** What is wrong, as text to show; `''` when nothing is. */
  readonly run: () => Promise<string>;
  /** Why it cannot run here, `''` when it can. Such a check is named and skipped. */
  readonly missing?: () => Promise<string>;
}

/** Python code that runs inside sandboxes; each of them must be readable by Python 3.6. */
const PYTHON_PACKAGES = ['rookery_build', 'rookery_runtime', 'rookery_zygote'].map(name => `runtimes/python/${name}`);

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
  { name: 'links of the documents', run: findBrokenLinks },
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
