/**
 * Builds the product and runs tests: `npm test`. Without arguments it runs the tests that cover one cell of
 * each matrix.
 * `--full` (`npm run test:full`) runs every test. `--rest` runs those that `npm test` leaves out. `--changed
 * [COMMIT]` runs those that a change affects.
 * Other arguments are passed to Vitest: `npm test -- src/core`. The last line has the totals: `N passed, N
 * failed[, N skipped]`.
 */
import { chmodSync, lstatSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { installHint, isPart, shareOfLongParts } from '../test/probe.ts';
import { MAX_QUARANTINED, QUARANTINE, type Quarantined } from '../test/quarantine.ts';
import { isInScope, SCOPE_VARIABLE, type Scope } from '../test/scope.ts';
import { testsOfChange } from './changed-tests.ts';
import { judgeClaims, readClaims, SKIPPED, type TestResult } from './claims.ts';
import { ARGUMENTS, bin, ROOT, run } from './command.ts';
import { NO_TESTS, plus, sentence, type Tally } from './tally.ts';
import { REPORT_FILE, type RunReport } from './test-reporter.ts';

const SCOPES: Readonly<Record<string, Scope>> = { '--full': 'full', '--rest': 'rest' };
/** Minutes on two idle cores, without any optional part and with every part of CI. */
const MINUTES: Readonly<Record<Scope, readonly [none: number, all: number]>> = {
  quick: [6, 12],
  rest: [25, 45],
  full: [30, 55],
};
const MAX_LEFT_LINES = 20;
/** Number of files that the line about the slowest ones names. */
const SLOWEST = 12;

const [first = '', second] = ARGUMENTS;
const scope = SCOPES[first] ?? (ARGUMENTS.length === 0 ? 'quick' : 'full');
const isWhole = ARGUMENTS.length === 0 || first in SCOPES;

const scratch = mkdtempSync(join(tmpdir(), 'rookery-test-'));
/**
 * Temporary directory of the tests. A file that remains in it at the end is a failure.
 * Its name is short, because paths of sockets have at most 107 bytes.
 */
const temporary = mkdtempSync(join(tmpdir(), 'rk-'));
chmodSync(temporary, 0o1777);

/** Lines to print right before the last line, where a reader sees them. */
const conclusions: string[] = [];

/** Returns the arguments of Vitest, or null when a change affects no test. */
async function vitestArguments(): Promise<readonly string[] | null> {
  if (isWhole) return [];
  if (first !== '--changed') return ['--reporter=default', ...ARGUMENTS];
  const files = await testsOfChange(second ?? 'HEAD');
  return files.length === 0 ? null : files;
}

/**
 * Runs Vitest. Returns its report, or null when it wrote none or ended with an error although no test failed.
 */
async function vitest(args: readonly string[]): Promise<RunReport | null> {
  const reportFile = join(scratch, 'report.json');
  const { code } = await run(bin('vitest'), ['run', `--reporter=${join(ROOT, 'scripts/test-reporter.ts')}`, ...args], {
    env: {
      ROOKERY_TEST_BUILT: '1',
      ROOKERY_TEST_KEPT_DIR: process.env.ROOKERY_TEST_KEPT_DIR ?? tmpdir(),
      TMPDIR: temporary,
      [REPORT_FILE]: reportFile,
      [SCOPE_VARIABLE]: scope,
    },
  });
  try {
    const report = JSON.parse(readFileSync(reportFile, 'utf8')) as RunReport;
    const hasFailure = report.errors.length > 0 || report.tests.some(({ status }) => status === 'failed');
    if (code === 0 || hasFailure) return report;
    conclusions.push(`Vitest ended with ${code} although no test failed`);
  } catch {
    conclusions.push(`Vitest ended with ${code} and without a report`);
  }
  return null;
}

function quarantineOf({ file, title }: TestResult): Quarantined | undefined {
  return QUARANTINE.find(each => each.file === file && each.title === title);
}

/**
 * Returns the numbers of a report. Adds every failure to `conclusions`, and prints missing parts and claims
 * that were not shown.
 */
function judge(report: RunReport): Tally {
  let tally = NO_TESTS;
  for (const test of report.tests) {
    const quarantined = quarantineOf(test);
    const isForgiven = test.status === 'failed' && quarantined !== undefined;
    tally = plus(tally, { ...NO_TESTS, [isForgiven ? 'skipped' : test.status]: 1 });
    const name = `${test.title} (${test.file})`;
    if (quarantined !== undefined) conclusions.push(`quarantined, ${test.status}: ${name}: ${quarantined.reason}`);
    else if (test.status === 'failed') conclusions.push(`failed: ${name}`);
  }
  for (const { file, text } of report.errors)
    conclusions.push(`error outside of a test, in ${file ?? 'no known file'}: ${text}`);
  const failures = [...claimFailures(report), ...quarantineFailures()];
  conclusions.push(...failures);
  printSkipped(report.tests);
  if (isWhole) printSlowest(report.seconds);
  return plus(tally, { ...NO_TESTS, failed: report.errors.length + failures.length });
}

function claimFailures(report: RunReport): readonly string[] {
  if (!isWhole) return [];
  const page = readFileSync(join(ROOT, 'docs/security-evidence.md'), 'utf8');
  const required = (process.env.REQUIRE ?? '').split(',').flatMap(part => (part.trim() === '' ? [] : [part.trim()]));
  const isExpected = (file: string) => (file.endsWith('.test.ts') ? isInScope(file, scope) : scope === 'full');
  const { notShown, failures } = judgeClaims(readClaims(page), report, required, isExpected);
  for (const text of notShown) console.log(text);
  return failures;
}

function quarantineFailures(): readonly string[] {
  if (QUARANTINE.length <= MAX_QUARANTINED) return [];
  return [`${QUARANTINE.length} tests are quarantined, at most ${MAX_QUARANTINED} may be`];
}

/** Start of the reasons for commands in the documents that a person runs. */
const BY_HAND = 'by hand: ';

/**
 * Prints a line for each reason: the number of skipped suites, and the command that installs the missing
 * part.
 */
function printSkipped(tests: readonly TestResult[]): void {
  const suites = new Map<string, Set<string>>();
  let byHand = 0;
  for (const { file, title, status } of tests) {
    const why = status === 'skipped' ? SKIPPED.exec(title)?.[1] : undefined;
    if (why?.startsWith(BY_HAND)) byHand += 1;
    else if (why !== undefined) suites.set(why, (suites.get(why) ?? new Set()).add(`${file} ${title}`));
  }
  for (const [why, titles] of suites) {
    const hints = why.split('; ').flatMap(reason => {
      const part = reason.split(':')[0] ?? '';
      return isPart(part) ? [installHint(part)] : [];
    });
    const how = hints.length === 0 ? '' : ` (${[...new Set(hints)].join('; ')})`;
    console.log(`skipped: ${titles.size} ${titles.size === 1 ? 'suite' : 'suites'}, ${why}${how}`);
  }
  if (byHand > 0) console.log(`skipped: ${byHand} blocks of the documents that a person runs; each names its reason`);
}

function printSlowest(seconds: Readonly<Record<string, number>>): void {
  const slowest = Object.entries(seconds).toSorted(([, one], [, other]) => other - one);
  const texts = slowest.slice(0, SLOWEST).map(([file, of]) => `${file} ${of.toFixed(0)} s`);
  const sum = Object.values(seconds).reduce((one, other) => one + other, 0);
  console.log(`slowest of ${slowest.length} files, ${(sum / 60).toFixed(0)} minutes in all: ${texts.join(', ')}`);
}

/** Returns the files that tests have left, except the compile cache of tsx. */
function leftInTemporary(): readonly string[] {
  return readdirSync(temporary).filter(name => !name.startsWith('tsx-'));
}

/** Returns the paths below `path` with sizes and times, which help to find the test that made them. */
function treeOf(path: string): readonly string[] {
  if (!lstatSync(path).isDirectory()) return [];
  return readdirSync(path, { recursive: true, encoding: 'utf8' })
    .sort()
    .map(name => {
      const { size, mtime } = lstatSync(join(path, name));
      return `${name} (${size} bytes, ${mtime.toISOString()})`;
    });
}

function judgeLeft(): Tally {
  const left = leftInTemporary();
  for (const name of left) {
    conclusions.push(`left in the temporary directory: ${name}`);
    for (const path of treeOf(join(temporary, name)).slice(0, MAX_LEFT_LINES)) conclusions.push(`  ${path}`);
  }
  return { ...NO_TESTS, failed: left.length > 0 ? 1 : 0 };
}

function remove(directory: string): void {
  try {
    rmSync(directory, { recursive: true, force: true });
  } catch (error) {
    // A test may have left a mount. `judgeLeft` has reported it.
    conclusions.push(`${directory} cannot be removed: ${String(error)}`);
  }
}

/** Returns a sentence with the minutes that this run takes, by the parts that this machine has. */
function expectedTime(): string {
  const [none, all] = MINUTES[scope];
  const minutes = Math.round(none + (all - none) * shareOfLongParts());
  return `about ${minutes} minutes on two idle cores (this machine has ${availableParallelism()} cores)`;
}

async function testAll(): Promise<Tally> {
  if (isWhole) console.log(expectedTime());
  const build = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts'], { capture: true });
  if (build.code !== 0) {
    console.log(build.output);
    conclusions.push('failed: scripts/build.ts');
    return { ...NO_TESTS, failed: 1 };
  }
  const args = await vitestArguments();
  if (args === null) return NO_TESTS;
  const report = await vitest(args);
  const tally = report === null ? { ...NO_TESTS, failed: 1 } : judge(report);
  return plus(tally, judgeLeft());
}

const startedMs = performance.now();
let total: Tally;
try {
  total = await testAll();
} finally {
  remove(scratch);
  remove(temporary);
}
process.exitCode = total.failed > 0 ? 1 : 0;
for (const text of conclusions) console.log(text);
if (isWhole) console.log(`took ${((performance.now() - startedMs) / 60_000).toFixed(1)} minutes`);
console.log(sentence(total));
