/**
 * `npm run mutations` inserts each fault of `mutations.ts` in a copy of the worktree. It runs the `npm test`
 * files that should find the fault, and prints the first failing test. Exits with 1 when a fault is not
 * found. `npm run mutations -- fence` runs only faults that contain that word.
 */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestReport } from '../../scripts/claims.ts';
import { ARGUMENTS, bin, ROOT, run } from '../../scripts/command.ts';
import { REPORT_FILE } from '../../scripts/test-reporter.ts';
import { SCOPE_VARIABLE } from '../scope.ts';
import { MUTATIONS, type Mutation } from './mutations.ts';

const NOT_COPIED = new Set(['node_modules', '.git', 'dist']);
const RUN_SECONDS = 300;

const copy = mkdtempSync(join(tmpdir(), 'rk-mutant-'));
const reportFile = join(copy, 'report.json');

function plant({ file, find, replace }: Mutation): void {
  const source = readFileSync(join(ROOT, file), 'utf8');
  if (source.split(find).length !== 2) throw new Error(`${file} does not have exactly once: ${find}`);
  writeFileSync(join(copy, file), source.replace(find, replace));
}

/** Returns the title of the first failed test, or null when every test passed. */
async function firstFailure({ tests }: Mutation): Promise<string | null> {
  rmSync(reportFile, { force: true });
  await run(bin('vitest'), ['run', '--bail=1', '--reporter=./scripts/test-reporter.ts', ...tests], {
    cwd: copy,
    env: { [REPORT_FILE]: reportFile, [SCOPE_VARIABLE]: 'quick' },
    capture: true,
    seconds: RUN_SECONDS,
  });
  const { tests: results, errors } = JSON.parse(readFileSync(reportFile, 'utf8')) as TestReport;
  const failed = results.find(({ status }) => status === 'failed');
  return failed === undefined ? (errors[0]?.text ?? null) : `${failed.title} (${failed.file})`;
}

try {
  for (const name of readdirSync(ROOT)) {
    if (!NOT_COPIED.has(name)) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  const chosen = MUTATIONS.filter(({ fault }) => ARGUMENTS.every(word => fault.includes(word)));
  let missed = 0;
  for (const mutation of chosen) {
    plant(mutation);
    const found = await firstFailure(mutation);
    cpSync(join(ROOT, mutation.file), join(copy, mutation.file));
    if (found === null) missed += 1;
    console.log(
      `${found === null ? 'NOT FOUND' : 'found'}  ${mutation.fault}${found === null ? '' : `\n       by ${found}`}`,
    );
  }
  console.log(`${chosen.length - missed} of ${chosen.length} faults found`);
  process.exitCode = missed > 0 ? 1 : 0;
} finally {
  rmSync(copy, { recursive: true, force: true });
}
