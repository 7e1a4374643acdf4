import { describe, expect, test } from 'vitest';
import { judgeClaims, readClaims, type VitestReport } from './claims.ts';

const CLAIM = { claim: 'Nobody gets out', file: 'test/sandbox/walls.test.ts', title: 'the door of %s is shut' };
const SUITE = { claim: 'Files stay inside', file: 'test/suites/files.ts', title: 'a link leads nowhere' };

type Test = readonly [title: string, status: string, ...ancestors: string[]];

function report(file: string, ...tests: Test[]): VitestReport {
  const assertionResults = tests.map(([title, status, ...ancestorTitles]) => ({ title, status, ancestorTitles }));
  return {
    testResults: [{ name: `/work/${file}`, status: 'passed', startTime: 0, endTime: 0, assertionResults }],
    errors: [],
  };
}

test('a claim is a line of a table with the file of its test and words of its title', () => {
  const page =
    '| Claim | Test |\n|---|---|\n| A | `src/a.test.ts`: it holds |\n| B | |\n| C | `test/suites/c.ts`: 100 % |';
  expect(readClaims(page)).toEqual([
    { claim: 'A', file: 'src/a.test.ts', title: 'it holds' },
    { claim: 'C', file: 'test/suites/c.ts', title: '100 %' },
  ]);
});

describe('a claim', () => {
  test('whose tests all passed is shown', () => {
    const run = report(CLAIM.file, ['the door of a is shut', 'passed', 'walls'], ['the door of b is shut', 'passed']);
    expect(judgeClaims([CLAIM], run, [])).toEqual({ notShown: [], failures: [] });
  });

  test('whose test was skipped is reported by its name, with the part that is missing', () => {
    const run = report(CLAIM.file, ['the door of a is shut', 'skipped', 'walls [skipped, docker: no daemon]']);
    expect(judgeClaims([CLAIM], run, ['go'])).toEqual({
      notShown: ['claim not shown on this machine: Nobody gets out (docker: no daemon)'],
      failures: [],
    });
  });

  test('of which some tests were skipped is not shown either, also those that give no reason', () => {
    const run = report(CLAIM.file, ['the door of a is shut', 'passed'], ['the door of b is shut', 'pending']);
    expect(judgeClaims([CLAIM], run, []).notShown).toEqual([
      'claim not shown on this machine: Nobody gets out (its test was skipped)',
    ]);
  });

  test('whose whole suite was skipped is not shown, with the reason of the suite', () => {
    const run = report(CLAIM.file, ['cannot run here', 'skipped', 'walls [skipped, docker: no daemon]']);
    expect(judgeClaims([CLAIM], run, [])).toEqual({
      notShown: ['claim not shown on this machine: Nobody gets out (docker: no daemon)'],
      failures: [],
    });
    expect(judgeClaims([CLAIM], run, ['docker']).failures).toHaveLength(1);
  });

  test('whose test was skipped fails the run when REQUIRE names the part', () => {
    const run = report(CLAIM.file, [
      'the door of a is shut',
      'skipped',
      'walls [skipped, root: no; docker: no daemon]',
    ]);
    const { failures, notShown } = judgeClaims([CLAIM], run, ['docker']);
    expect(failures).toEqual([
      'claim not shown although REQUIRE names docker: Nobody gets out (root: no; docker: no daemon)',
    ]);
    expect(notShown).toEqual([]);
  });

  test.each([
    ['is in another file', report('test/sandbox/other.test.ts', ['the door of a is shut', 'passed'])],
    ['has another title', report(CLAIM.file, ['the door of a is open', 'passed'])],
    ['is in a file that was not loaded', report(CLAIM.file)],
    // `describeWith` puts this in place of a suite that REQUIRE names.
    ['was not made', report(CLAIM.file, ['has what REQUIRE=docker demands', 'failed'])],
  ])('whose test %s fails the run', (_, run) => {
    expect(judgeClaims([CLAIM], run, []).failures).toEqual([
      'claim without a test in this run: Nobody gets out (test/sandbox/walls.test.ts: the door of %s is shut)',
    ]);
  });

  test('of a suite is shown by any file that runs it; a sandbox that cannot have it is no loss, a missing part is reported', () => {
    const passed = report('test/sandbox/process.test.ts', ['a link leads nowhere', 'passed']);
    const cannot = report('test/sandbox/supervisor.test.ts', ['a link leads nowhere', 'pending', 'supervisord']);
    const missing = report('test/sandbox/docker.test.ts', [
      'a link leads nowhere',
      'skipped',
      'x [skipped, docker: none]',
    ]);
    const all = (...reports: VitestReport[]) => ({
      testResults: reports.flatMap(each => each.testResults),
      errors: [],
    });
    expect(judgeClaims([SUITE], all(passed, cannot), [])).toEqual({ notShown: [], failures: [] });
    expect(judgeClaims([SUITE], all(passed, missing), []).notShown).toEqual([
      'claim not shown on this machine: Files stay inside (docker: none)',
    ]);
    expect(judgeClaims([SUITE], all(cannot), []).notShown).toEqual([
      'claim not shown on this machine: Files stay inside (its test was skipped)',
    ]);
    expect(judgeClaims([SUITE], all(passed, missing), ['docker']).failures).toHaveLength(1);
  });
});
