/** A claim of docs/security-evidence.md, and the test that shows it. */
export interface Claim {
  readonly claim: string;
  /** Path of a test file, or of a suite that several test files run. */
  readonly file: string;
  /** Title of the test as in the source, with its placeholders (`%s`), or its first words and ` …`. */
  readonly title: string;
}

/** Result of a single test. */
export interface TestResult {
  /** Path relative to the root of the repository. */
  readonly file: string;
  /** Title after the titles of its suites, separated by spaces. */
  readonly title: string;
  readonly status: 'passed' | 'failed' | 'skipped';
}

/** Report that a run of Vitest writes for `scripts/test.ts`. */
export interface TestReport {
  readonly tests: readonly TestResult[];
  /** Errors outside of tests, such as an unhandled rejection. Each fails the run. */
  readonly errors: readonly {
    /** File that ran when the error happened, or null when Vitest names none. */
    readonly file: string | null;
    readonly text: string;
  }[];
}

/** Result of a run for the claims. */
export interface Verdict {
  /** Sentences about claims whose test this machine could not run. */
  readonly notShown: readonly string[];
  /** Claims without a test that ran, and claims whose test a part of `REQUIRE` should have run. */
  readonly failures: readonly string[];
}

/** Test of a table cell: the file and the title. The file is absent if it equals that of the test before. */
const TEST = /^(?:`([^`]+\.(?:ts|py))`: )?(.+)$/;

/** Reads the tables of claims. Returns a claim with several tests (`<br>`) once for each test. */
export function readClaims(page: string): readonly Claim[] {
  return page.split('\n').flatMap(line => {
    const [, claim, cell] = /^\| (.+?) \| (`[^`]+\.(?:ts|py)`: .+) \|$/.exec(line) ?? [];
    if (claim === undefined || cell === undefined) return [];
    let last = '';
    return cell.split('<br>').flatMap(part => {
      const [, file = last, title = ''] = TEST.exec(part) ?? [];
      last = file;
      return title === '' ? [] : [{ claim, file, title }];
    });
  });
}

/** Returns the words of a title that are in the source. ` …` at the end means further words. */
export function wordsOf(title: string): string {
  return title.replace(/ …$/, '');
}

/**
 * Looks up the tests of each claim in the report of a run. `required` has the parts that `REQUIRE` names.
 * `isExpected` returns true if the run should have the tests of a file. Claims of other files belong to
 * another run.
 */
export function judgeClaims(
  claims: readonly Claim[],
  report: TestReport,
  required: readonly string[],
  isExpected: (file: string) => boolean = () => true,
): Verdict {
  const notShown: string[] = [];
  const failures: string[] = [];
  // The report does not contain tests in Python, because they have another runner.
  for (const { claim, file, title } of claims.filter(({ file }) => file.endsWith('.ts'))) {
    const pattern = patternOf(wordsOf(title));
    const isSuite = !file.endsWith('.test.ts');
    const inFile = report.tests.filter(test => isSuite || test.file === file);
    const named = inFile.filter(test => pattern.test(test.title));
    // The report lists a skipped suite as one skipped test, without the tests of the suite.
    const tests = named.length > 0 || isSuite ? named : inFile.filter(test => SKIPPED.test(test.title));
    const skipped = tests.filter(({ status }) => status === 'skipped');
    // A suite skips the tests that do not fit its sandbox. One sandbox with the test is enough to show the
    // claim.
    const isShown = isSuite ? tests.length > skipped.length : skipped.length === 0;
    if (tests.length === 0) {
      if (isExpected(file)) failures.push(`claim without a test in this run: ${claim} (${file}: ${title})`);
      continue;
    }
    for (const why of new Set(skipped.map(whySkipped))) {
      const part = required.find(name => why.includes(`${name}:`));
      if (part !== undefined) failures.push(`claim not shown although REQUIRE names ${part}: ${claim} (${why})`);
      else if (!isShown || why !== NO_REASON) notShown.push(`claim not shown on this machine: ${claim} (${why})`);
    }
  }
  return { notShown: [...new Set(notShown)], failures };
}

const NO_REASON = 'its test was skipped';

/** End of the title of a suite that this machine cannot run: `[skipped, docker: no daemon]`. */
export const SKIPPED = /\[skipped, (.+?)\](?= |$)/;

/** Returns `docker: no daemon` for a title that ends with `[skipped, docker: no daemon]`. */
function whySkipped(test: TestResult): string {
  return SKIPPED.exec(test.title)?.[1] ?? NO_REASON;
}

/** Returns a pattern for a title in the report, where Vitest has replaced `%s`, `$name` and `${…}`. */
function patternOf(title: string): RegExp {
  const parts = title.split(/%[sdifjoO]|\$\{[^}]*\}|\$[a-zA-Z_][\w.]*/);
  return new RegExp(parts.map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('.*'), 's');
}
