/** The claims of docs/security.md and the tests that show them. */
export interface Claim {
  readonly claim: string;
  /** A test file, or a suite that several test files run. */
  readonly file: string;
  /** Words of the test's title as they stand in the source, with its placeholders (`%s`). */
  readonly title: string;
}

/** What Vitest's JSON reporter writes, as far as it is read here. */
export interface VitestReport {
  readonly testResults: readonly {
    /** The absolute path of the file. */
    readonly name: string;
    readonly status: string;
    /** In milliseconds of the clock. */
    readonly startTime: number;
    readonly endTime: number;
    readonly assertionResults: readonly {
      readonly status: string;
      readonly ancestorTitles: readonly string[];
      readonly title: string;
    }[];
  }[];
  /** What `errors-reporter.ts` adds: errors that no test caught, as an unhandled rejection is one. They fail the run. */
  readonly errors: readonly {
    /** The absolute path of the file that ran then; null when none is known. */
    readonly file: string | null;
    readonly text: string;
  }[];
}

/** What a run says of the claims. */
export interface Verdict {
  /** Sentences about claims whose test this machine could not run. */
  readonly notShown: readonly string[];
  /** Claims without a test that ran, and claims whose test a part of `REQUIRE` should have run. */
  readonly failures: readonly string[];
}

/** The last cell of a table's line: the file of a test and words of its title. */
const TEST_CELL = /\| `([^`]+\.test\.ts|test\/suites\/[^`]+\.ts)`: (.+?) \|$/;

export function readClaims(page: string): readonly Claim[] {
  return page.split('\n').flatMap(line => {
    const [, file, title] = TEST_CELL.exec(line) ?? [];
    return file === undefined || title === undefined ? [] : [{ claim: line.split('|')[1]?.trim() ?? '', file, title }];
  });
}

/** Looks up the tests of each claim in the report of a whole run. `required`: the parts that `REQUIRE` names. */
export function judgeClaims(claims: readonly Claim[], report: VitestReport, required: readonly string[]): Verdict {
  const notShown: string[] = [];
  const failures: string[] = [];
  for (const { claim, file, title } of claims) {
    const pattern = patternOf(title);
    const isSuite = !file.endsWith('.test.ts');
    const inFile = report.testResults
      .filter(({ name }) => isSuite || name.endsWith(`/${file}`))
      .flatMap(({ assertionResults }) => assertionResults);
    const named = inFile.filter(test => pattern.test(titleOf(test)));
    // A suite that is skipped as a whole is one skipped test, and its own are not known.
    const tests = named.length > 0 || isSuite ? named : inFile.filter(test => SKIPPED.test(titleOf(test)));
    const skipped = tests.filter(({ status }) => status !== 'passed' && status !== 'failed');
    // A suite leaves out what the sandbox under it cannot have: it shows the claim where one of its sandboxes has it.
    const isShown = isSuite ? tests.length > skipped.length : skipped.length === 0;
    if (tests.length === 0) failures.push(`claim without a test in this run: ${claim} (${file}: ${title})`);
    for (const why of new Set(skipped.map(whySkipped))) {
      const part = required.find(name => why.includes(`${name}:`));
      if (part !== undefined) failures.push(`claim not shown although REQUIRE names ${part}: ${claim} (${why})`);
      else if (!isShown || why !== NO_REASON) notShown.push(`claim not shown on this machine: ${claim} (${why})`);
    }
  }
  return { notShown, failures };
}

const NO_REASON = 'its test was skipped';

const SKIPPED = /\[skipped, (.+)\]/;

/** `docker: no daemon` of a test or suite with the title `containers [skipped, docker: no daemon]`. */
function whySkipped(test: Titled): string {
  return SKIPPED.exec(titleOf(test))?.[1] ?? NO_REASON;
}

interface Titled {
  readonly ancestorTitles: readonly string[];
  readonly title: string;
}

function titleOf({ ancestorTitles, title }: Titled): string {
  return [...ancestorTitles, title].join(' ');
}

/** The title as the report has it: Vitest has put values in place of `%s`, `$name`, and the source in place of `${…}`. */
function patternOf(title: string): RegExp {
  const parts = title.split(/%[sdifjoO]|\$\{[^}]*\}|\$[a-zA-Z_][\w.]*/);
  return new RegExp(parts.map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('.*'), 's');
}
