import { describe, expect, test } from 'vitest';
import { judgeClaims, readClaims, type TestReport } from './claims.ts';

const CLAIM = { claim: 'Nobody gets out', file: 'test/sandbox/walls.test.ts', title: 'the door of %s is shut' };
const SUITE = { claim: 'Files stay inside', file: 'test/suites/files.ts', title: 'a link leads nowhere' };

type Test = readonly [title: string, status: 'passed' | 'failed' | 'skipped', ...suites: string[]];

function report(file: string, ...tests: Test[]): TestReport {
  const results = tests.map(([title, status, ...suites]) => ({ file, title: [...suites, title].join(' '), status }));
  return { tests: results, errors: [] };
}

test('readClaims reads a claim from a table line with the file and the title of its test', () => {
  const page =
    '| Claim | Test |\n|---|---|\n| A | `src/a.test.ts`: it holds |\n| B | |\n| C | `test/suites/c.ts`: 100 % |';
  expect(readClaims(page)).toEqual([
    { claim: 'A', file: 'src/a.test.ts', title: 'it holds' },
    { claim: 'C', file: 'test/suites/c.ts', title: '100 %' },
  ]);
});

test('readClaims returns a claim with several tests once for each test, with the file named before', () => {
  const page = '| A | `src/a.test.ts`: one …<br>two<br>`b.py`: test_three |';
  expect(readClaims(page)).toEqual([
    { claim: 'A', file: 'src/a.test.ts', title: 'one …' },
    { claim: 'A', file: 'src/a.test.ts', title: 'two' },
    { claim: 'A', file: 'b.py', title: 'test_three' },
  ]);
});

describe('judgeClaims', () => {
  test("judgeClaims finds a test by its first words when the claim's title is cut", () => {
    const run = report(CLAIM.file, ['the door of a is shut', 'passed']);
    expect(judgeClaims([{ ...CLAIM, title: 'the door of …' }], run, [])).toEqual({ notShown: [], failures: [] });
  });

  test('judgeClaims ignores a claim whose file belongs to another scope', () => {
    const run = report('test/sandbox/other.test.ts', ['x', 'passed']);
    expect(judgeClaims([CLAIM], run, [], file => file !== CLAIM.file).failures).toEqual([]);
  });

  test('judgeClaims reports nothing when all tests of a claim passed', () => {
    const run = report(CLAIM.file, ['the door of a is shut', 'passed', 'walls'], ['the door of b is shut', 'passed']);
    expect(judgeClaims([CLAIM], run, [])).toEqual({ notShown: [], failures: [] });
  });

  test('judgeClaims names a claim and the missing part when its test was skipped', () => {
    const run = report(CLAIM.file, ['the door of a is shut', 'skipped', 'walls [skipped, docker: no daemon]']);
    expect(judgeClaims([CLAIM], run, ['go'])).toEqual({
      notShown: ['claim not shown on this machine: Nobody gets out (docker: no daemon)'],
      failures: [],
    });
  });

  test('judgeClaims names a claim when some of its tests were skipped without a reason', () => {
    const run = report(CLAIM.file, ['the door of a is shut', 'passed'], ['the door of b is shut', 'skipped']);
    expect(judgeClaims([CLAIM], run, []).notShown).toEqual([
      'claim not shown on this machine: Nobody gets out (its test was skipped)',
    ]);
  });

  test('judgeClaims names a claim and the reason of its suite when the whole suite was skipped', () => {
    const run = report(CLAIM.file, ['cannot run here', 'skipped', 'walls [skipped, docker: no daemon]']);
    expect(judgeClaims([CLAIM], run, [])).toEqual({
      notShown: ['claim not shown on this machine: Nobody gets out (docker: no daemon)'],
      failures: [],
    });
    expect(judgeClaims([CLAIM], run, ['docker']).failures).toHaveLength(1);
  });

  test('judgeClaims reports a failure when a test was skipped although REQUIRE names its part', () => {
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
    // `describeWith` runs this test instead of a suite that REQUIRE names and that cannot run.
    ['is missing in the report', report(CLAIM.file, ['has what REQUIRE=docker demands', 'failed'])],
  ])('judgeClaims reports a failure when the test of a claim %s', (_, run) => {
    expect(judgeClaims([CLAIM], run, []).failures).toEqual([
      'claim without a test in this run: Nobody gets out (test/sandbox/walls.test.ts: the door of %s is shut)',
    ]);
  });

  test("judgeClaims accepts a suite's claim when one sandbox shows it, and reports a missing part", () => {
    const passed = report('test/sandbox/process.test.ts', ['a link leads nowhere', 'passed']);
    const cannot = report('test/sandbox/supervisor.test.ts', ['a link leads nowhere', 'skipped', 'supervisord']);
    const missing = report('test/sandbox/docker.test.ts', [
      'a link leads nowhere',
      'skipped',
      'x [skipped, docker: none]',
    ]);
    const all = (...reports: TestReport[]) => ({ tests: reports.flatMap(({ tests }) => tests), errors: [] });
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
