/**
 * Reporter of Vitest. It prints a line for each group of tests and each failure, and writes a report for
 * `scripts/test.ts`.
 */
import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import type { SerializedError, TestError } from 'vitest';
import type { Reporter, TestCase, TestModule, TestSpecification } from 'vitest/node';
import { type Group, groupOf } from '../test/groups.ts';
import type { TestReport, TestResult } from './claims.ts';
import { ROOT } from './command.ts';
import { NO_TESTS, plus, sentence, type Tally } from './tally.ts';

/** Variable with the path of the file to which the report is written, as JSON (`RunReport`). */
export const REPORT_FILE = 'ROOKERY_TEST_REPORT';
/** Title of the result of a file that failed outside of its tests. */
export const WHOLE_FILE = 'the file as a whole';
const MAX_STACK_LINES = 12;

/** Report of a run, with the durations of its files. */
export interface RunReport extends TestReport {
  /** Duration of each test file, with the load of its modules. */
  readonly seconds: Readonly<Record<string, number>>;
}

interface Progress {
  readonly group: Group;
  filesLeft: number;
  tally: Tally;
}

export default class GroupReporter implements Reporter {
  readonly #progress = new Map<string, Progress>();
  readonly #tests: TestResult[] = [];
  readonly #seconds: Record<string, number> = {};

  onTestRunStart(specifications: readonly TestSpecification[]): void {
    for (const { moduleId } of specifications) this.#of(relative(ROOT, moduleId)).filesLeft += 1;
  }

  onTestModuleEnd(module: TestModule): void {
    const file = relative(ROOT, module.moduleId);
    const progress = this.#of(file);
    const results = resultsOf(module, file);
    const { collectDuration, duration } = module.diagnostic();
    this.#seconds[file] = (collectDuration + duration) / 1000;
    this.#tests.push(...results);
    progress.tally = results.reduce((tally, { status }) => plus(tally, { ...NO_TESTS, [status]: 1 }), progress.tally);
    progress.filesLeft -= 1;
    if (progress.filesLeft === 0) {
      const { name, proves } = progress.group;
      console.log(`${name}: ${proves} … ${sentence(progress.tally)}`);
    }
  }

  onTestRunEnd(_modules: unknown, unhandled: readonly SerializedError[]): void {
    const errors = unhandled.map(error => {
      const path = typeof error.VITEST_TEST_PATH === 'string' ? relative(ROOT, error.VITEST_TEST_PATH) : null;
      return { file: path, text: error.stack || `${error.name}: ${error.message}` };
    });
    const report: RunReport = { tests: this.#tests, errors, seconds: this.#seconds };
    const path = process.env[REPORT_FILE];
    if (path !== undefined) writeFileSync(path, JSON.stringify(report));
  }

  #of(file: string): Progress {
    const group = groupOf(file);
    let progress = this.#progress.get(group.name);
    if (progress === undefined) {
      progress = { group, filesLeft: 0, tally: NO_TESTS };
      this.#progress.set(group.name, progress);
    }
    return progress;
  }
}

/**
 * Returns one result for each test, and a failed one for a file that fails outside of a test. Prints
 * failures.
 */
function resultsOf(module: TestModule, file: string): readonly TestResult[] {
  const results: TestResult[] = [];
  for (const test of module.children.allTests()) {
    const { state, errors } = test.result();
    const status = state === 'passed' || state === 'failed' ? state : 'skipped';
    const title = titleOf(test);
    results.push({ file, title, status });
    if (status === 'failed') print(`${title} (${file})`, errors ?? []);
  }
  const ofSuites = [...module.children.allSuites()].flatMap(suite => suite.errors());
  const errors = [...module.errors(), ...ofSuites];
  if (errors.length > 0 || (module.state() === 'failed' && !results.some(({ status }) => status === 'failed'))) {
    results.push({ file, title: WHOLE_FILE, status: 'failed' });
    print(file, errors);
  }
  return results;
}

function titleOf(test: TestCase): string {
  const titles = [test.name];
  for (let suite = test.parent; suite.type === 'suite'; suite = suite.parent) titles.unshift(suite.name);
  return titles.join(' ');
}

function print(title: string, errors: readonly (TestError | SerializedError)[]): void {
  console.log(`FAILED ${title}`);
  for (const { message, stack, diff } of errors) {
    console.log(String(message));
    if (typeof diff === 'string') console.log(diff);
    const frames = (stack ?? '').split('\n').filter(line => /^\s+at /.test(line));
    console.log(frames.slice(0, MAX_STACK_LINES).join('\n'));
  }
}
