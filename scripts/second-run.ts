import type { VitestReport } from './claims.ts';

/**
 * Files with a failed test run once more, alone, when they are no more and took no longer than this: with many, something is broken, and the
 * second run would only cost time, of which continuous integration has little left by then.
 */
export const MOST_FILES = 3;
const MOST_MS = 900_000;

/** A report after a second run. */
export interface Settled {
  readonly report: VitestReport;
  /** The tests that failed among all others and passed alone, and errors of theirs. They are listed on every run, for somebody to mend. */
  readonly unstable: readonly string[];
}

type File = VitestReport['testResults'][number];

const titleOf = ({ ancestorTitles, title }: File['assertionResults'][number]) => [...ancestorTitles, title].join(' > ');

/** The files to run once more, empty when none is, or when they are too many or took too long: one of them less would change no verdict. */
export function filesToRunAgain(report: VitestReport): readonly string[] {
  const withErrors = new Set(report.errors.map(({ file }) => file));
  const failed = report.testResults.filter(
    file =>
      file.status === 'failed' ||
      withErrors.has(file.name) ||
      file.assertionResults.some(result => result.status === 'failed'),
  );
  const tookMs = failed.reduce((sum, { startTime, endTime }) => sum + endTime - startTime, 0);
  return failed.length > MOST_FILES || tookMs > MOST_MS ? [] : failed.map(file => file.name);
}

/** `first` with the results of the files that `second` has. A file counts as it ended alone, with its errors. */
export function settle(first: VitestReport, second: VitestReport): Settled {
  const alone = new Map(second.testResults.map(file => [file.name, file]));
  const unstable = first.testResults.flatMap(file => {
    const passed = new Set(
      alone.get(file.name)?.assertionResults.flatMap(result => (result.status === 'passed' ? [titleOf(result)] : [])),
    );
    return file.assertionResults
      .filter(result => result.status === 'failed' && passed.has(titleOf(result)))
      .map(titleOf);
  });
  const judgedAlone = (file: string | null) => file !== null && alone.has(file);
  return {
    report: {
      testResults: first.testResults.map(file => alone.get(file.name) ?? file),
      errors: [...first.errors.filter(({ file }) => !judgedAlone(file)), ...second.errors],
    },
    unstable: [
      ...unstable,
      ...first.errors
        .filter(({ file }) => judgedAlone(file) && !second.errors.some(error => error.file === file))
        .map(({ file, text }) => `${file}: ${text}`),
    ],
  };
}
