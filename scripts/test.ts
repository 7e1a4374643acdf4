/**
 * `npm test [-- <vitest arguments>]`: builds what the tests run, then Vitest, then the Python unit tests on every interpreter
 * of this machine. The last line sums all: `N passed, N failed[, N skipped]`. With arguments only Vitest runs, with them.
 */
import { chmodSync, lstatSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Interpreter } from '../src/sandbox/host/interpreters.ts';
import { judgeClaims, readClaims, type VitestReport } from './claims.ts';
import { ARGUMENTS, bin, ROOT, run } from './command.ts';
import { ERRORS_FILE } from './errors-reporter.ts';
import { findInterpreters } from './pythons.ts';
import { filesToRunAgain, MOST_FILES, settle } from './second-run.ts';
import { readUnittest, type Tally } from './unittest-summary.ts';

const scratch = mkdtempSync(join(tmpdir(), 'rookery-test-'));
/**
 * The temporary directory of this run, for tests of any user; what is left in it at the end is a failure. Its name is short, since paths of
 * sockets have at most 107 bytes.
 */
const temporary = mkdtempSync(join(tmpdir(), 'rk-'));
const TEMPORARY = { TMPDIR: temporary, ROOKERY_TEST_KEPT_DIR: process.env.ROOKERY_TEST_KEPT_DIR ?? tmpdir() };
chmodSync(temporary, 0o1777);
const MOST_LINES_OF_LEFT = 20;
const total = { passed: 0, failed: 0, skipped: 0 };
/** What must not be looked for in a long log: it stands right before the last line. */
const lastWords: string[] = [];
/** In the temporary directory after a run in which a test was unstable: one that its time limit has cut off could clean up nothing. */
let leftByUnstable: readonly string[] = [];
/** A suite takes two minutes at most; one that hangs must not take the verdict of all others along. */
const PYTHON_SUITE_SECONDS = 10 * 60;
const PYTHON_ROOT = join(ROOT, 'runtimes/python');

function add(tally: Tally): void {
  total.passed += tally.passed;
  total.failed += tally.failed;
  total.skipped += tally.skipped;
}

function endWith(sentence: string): void {
  lastWords.push(sentence);
}

/** Null: Vitest wrote no report. */
async function vitest(name: string, args: readonly string[]): Promise<{ code: number; report: VitestReport | null }> {
  const [resultsFile, errorsFile] = [join(scratch, `${name}.json`), join(scratch, `${name}-errors.json`)];
  const reporters = ['default', 'json', join(ROOT, 'scripts/errors-reporter.ts')].map(each => `--reporter=${each}`);
  const { code } = await run(bin('vitest'), ['run', ...reporters, `--outputFile.json=${resultsFile}`, ...args], {
    env: { ROOKERY_TEST_BUILT: '1', [ERRORS_FILE]: errorsFile, ...TEMPORARY },
  });
  const read = <T>(path: string) => JSON.parse(readFileSync(path, 'utf8')) as T;
  try {
    const { testResults } = read<Pick<VitestReport, 'testResults'>>(resultsFile);
    return { code, report: { testResults, errors: read<VitestReport['errors']>(errorsFile) } };
  } catch {
    return { code, report: null };
  }
}

/** The whole suite shares two cores: a test that fails among all others is judged by a run of its file alone, and named if that passes. */
async function vitestTwice(): Promise<{ code: number; report: VitestReport | null }> {
  const first = await vitest('all', ARGUMENTS);
  const again = first.report === null || ARGUMENTS.length > 0 ? [] : filesToRunAgain(first.report);
  if (first.report === null || again.length === 0) return first;
  const leftByFirst = leftInTemporary();
  const second = await vitest('again', again);
  if (second.report === null) return first;
  const { report, unstable } = settle(first.report, second.report);
  for (const title of unstable) endWith(`unstable: failed among all tests, passed alone: ${title}`);
  if (unstable.length > 0) leftByUnstable = leftByFirst;
  return { code: second.code, report };
}

async function runVitest(): Promise<Tally> {
  const { code, report } = await vitestTwice();
  const tally = { passed: 0, failed: 0, skipped: 0 };
  const skippedSuites = new Set<string>();
  if (report === null) {
    endWith(`Vitest ended with ${code} and without a report`);
    return { passed: 0, failed: 1, skipped: 0 };
  }
  for (const file of report.testResults) {
    // A file that could not be loaded has no tests, and is a failure all the same.
    if (file.status === 'failed' && !file.assertionResults.some(result => result.status === 'failed')) {
      tally.failed += 1;
      endWith(`failed: ${file.name}, as a whole`);
    }
    for (const { status, ancestorTitles, title } of file.assertionResults) {
      if (status === 'passed') tally.passed += 1;
      else if (status === 'failed') {
        tally.failed += 1;
        endWith(`failed: ${[...ancestorTitles, title].join(' > ')} (${file.name})`);
      } else {
        tally.skipped += 1;
        skippedSuites.add(ancestorTitles.find(title => title.includes('[skipped')) ?? ancestorTitles.join(' > '));
      }
    }
  }
  for (const suite of skippedSuites) console.log(`skipped: ${suite}`);
  // With arguments only some tests ran.
  if (ARGUMENTS.length === 0) {
    const page = readFileSync(join(ROOT, 'docs/security.md'), 'utf8');
    const required = (process.env.REQUIRE ?? '').split(',').map(part => part.trim());
    const { notShown, failures } = judgeClaims(readClaims(page), report, required);
    for (const sentence of notShown) console.log(sentence);
    failures.forEach(endWith);
    tally.failed += failures.length;
  }
  for (const { file, text } of report.errors)
    endWith(`an error that no test caught, in ${file ?? 'no file that is known'}: ${text}`);
  tally.failed += report.errors.length;
  if (code !== 0 && tally.failed === 0) {
    endWith(`Vitest ended with ${code} though no test failed`);
    tally.failed = 1;
  }
  return tally;
}

/** The directories of unit tests below runtimes/python: tests, tests_zygote … */
function pythonSuites(): readonly string[] {
  return readdirSync(PYTHON_ROOT, { withFileTypes: true })
    .filter(entry => entry.isDirectory() && entry.name.startsWith('tests'))
    .map(entry => entry.name)
    .sort();
}

interface PythonRun {
  readonly interpreter: Interpreter;
  readonly suite: string;
}

/** As many at once as there are cores: each has directories, ports and namespaces of its own, and much of it waits. */
async function runPythons(interpreters: readonly Interpreter[]): Promise<void> {
  const runs = pythonSuites().flatMap(suite => interpreters.map(interpreter => ({ interpreter, suite })));
  const failed: { readonly run: PythonRun; readonly tally: Tally }[] = [];
  const work = async () => {
    for (let next = runs.shift(); next !== undefined; next = runs.shift()) {
      const tally = await runPython(next);
      if (tally.failed > 0) failed.push({ run: next, tally });
      else add(tally);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
  // As with Vitest: a few that failed beside another are judged by a run of their own.
  for (const { run: again, tally } of failed) {
    const second = failed.length > MOST_FILES ? tally : await runPython(again);
    if (second.failed === 0)
      endWith(`unstable: failed beside another, passed alone: python${again.interpreter.version} ${again.suite}`);
    else endWith(`failed: python${again.interpreter.version} ${again.suite} (its output is above)`);
    add(second);
  }
}

async function runPython({ interpreter, suite }: PythonRun): Promise<Tally> {
  const { code, output } = await run(
    interpreter.path,
    ['-B', '-X', 'faulthandler', '-m', 'unittest', 'discover', '-s', suite],
    {
      cwd: PYTHON_ROOT,
      env: { PYTHONPATH: PYTHON_ROOT, TMPDIR: temporary },
      capture: true,
      seconds: PYTHON_SUITE_SECONDS,
    },
  );
  const tally = readUnittest(output, code);
  console.log(`python${interpreter.version} ${suite}: ${line(tally)}`);
  if (tally.failed > 0) console.log(output.trimEnd());
  return tally;
}

function line({ passed, failed, skipped }: Tally): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

/** What tests have left; but for tsx, which keeps what it has compiled. */
function leftInTemporary(): readonly string[] {
  return readdirSync(temporary).filter(name => !name.startsWith('tsx-'));
}

/** What is below, with sizes and times: they tell who made it. */
function treeOf(path: string): readonly string[] {
  if (!lstatSync(path).isDirectory()) return [];
  return readdirSync(path, { recursive: true, encoding: 'utf8' })
    .sort()
    .map(name => {
      const { size, mtime } = lstatSync(join(path, name));
      return `${name} (${size} bytes, ${mtime.toISOString()})`;
    });
}

try {
  const build = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts']);
  if (build.code !== 0) {
    endWith('failed: scripts/build.ts');
    add({ passed: 0, failed: 1, skipped: 0 });
  }
  add(await runVitest());
  if (ARGUMENTS.length === 0) {
    const interpreters = await findInterpreters();
    if (interpreters.length === 0) {
      endWith('no Python 3.6 or newer was found: the runtime cannot be tested');
      add({ passed: 0, failed: 1, skipped: 0 });
    }
    await runPythons(interpreters);
  }
  const left = leftInTemporary();
  for (const name of left) {
    endWith(`left in the temporary directory: ${name}`);
    for (const path of treeOf(join(temporary, name)).slice(0, MOST_LINES_OF_LEFT)) endWith(`  ${path}`);
  }
  if (left.some(name => !leftByUnstable.includes(name))) total.failed += 1;
} finally {
  for (const directory of [scratch, temporary]) {
    try {
      rmSync(directory, { recursive: true, force: true });
    } catch (error) {
      // A mount that was left, as one says above.
      endWith(`${directory} cannot be removed: ${String(error)}`);
    }
  }
}
process.exitCode = total.failed > 0 ? 1 : 0;
for (const sentence of lastWords) console.log(sentence);
console.log(line(total));
