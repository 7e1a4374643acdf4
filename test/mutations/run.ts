/**
 * `npm run mutations` inserts each fault of `mutations.ts` in a copy of the worktree. It runs the `npm test`
 * files that should find the fault, and prints the first test that fails because of the fault. Exits with 1
 * when no named test finds a fault. `npm run mutations -- fence` runs only faults that contain that word.
 */
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestReport } from '../../scripts/claims.ts';
import { ARGUMENTS, bin, ROOT, run } from '../../scripts/command.ts';
import { REPORT_FILE, WHOLE_FILE } from '../../scripts/test-reporter.ts';
import { SCOPE_VARIABLE } from '../scope.ts';
import { MUTATIONS, type Mutation } from './mutations.ts';

const NOT_COPIED = new Set(['node_modules', '.git', 'dist']);
const RUN_SECONDS = 600;

const copy = mkdtempSync(join(tmpdir(), 'rk-mutant-'));
const reportFile = join(copy, 'report.json');

function plant({ file, find, replace }: Mutation): void {
  const source = readFileSync(join(ROOT, file), 'utf8');
  if (source.split(find).length !== 2) throw new Error(`${file} does not have exactly once: ${find}`);
  writeFileSync(join(copy, file), source.replace(find, replace));
}

/**
 * Runs tests in the copy. Returns the named tests that failed, in their order, or null when no report was
 * written. A file that fails as a whole names no test, so it does not count.
 */
async function failuresOf(tests: readonly string[], bail: number): Promise<readonly string[] | null> {
  rmSync(reportFile, { force: true });
  const limit = bail === 0 ? [] : [`--bail=${bail}`];
  await run(bin('vitest'), ['run', ...limit, '--reporter=./scripts/test-reporter.ts', ...tests], {
    cwd: copy,
    env: { [REPORT_FILE]: reportFile, [SCOPE_VARIABLE]: 'quick' },
    capture: true,
    seconds: RUN_SECONDS,
  });
  if (!existsSync(reportFile)) return null;
  const { tests: results } = JSON.parse(readFileSync(reportFile, 'utf8')) as TestReport;
  return results
    .filter(({ status, title }) => status === 'failed' && title !== WHOLE_FILE)
    .map(({ title, file }) => `${title} (${file})`);
}

try {
  for (const name of readdirSync(ROOT)) {
    if (!NOT_COPIED.has(name)) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  const chosen = MUTATIONS.filter(({ fault }) => ARGUMENTS.every(word => fault.includes(word)));
  const baseline = await failuresOf([...new Set(chosen.flatMap(({ tests }) => tests))], 0);
  if (baseline === null) throw new Error('the tests wrote no report without a fault');
  for (const name of baseline) console.log(`fails without a fault, so it finds none: ${name}`);
  let missed = 0;
  for (const mutation of chosen) {
    plant(mutation);
    const failures = await failuresOf(mutation.tests, baseline.length + 1);
    cpSync(join(ROOT, mutation.file), join(copy, mutation.file));
    const found = failures?.find(name => !baseline.includes(name));
    if (found === undefined) missed += 1;
    const how = failures === null ? `no report within ${RUN_SECONDS} s` : 'no named test fails';
    console.log(`${found === undefined ? 'NOT FOUND' : 'found'}  ${mutation.fault}\n       by ${found ?? how}`);
  }
  console.log(`${chosen.length - missed} of ${chosen.length} faults found`);
  process.exitCode = missed > 0 ? 1 : 0;
} finally {
  rmSync(copy, { recursive: true, force: true });
}
