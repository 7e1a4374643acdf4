import { describe, expect, test } from 'vitest';
import type { VitestReport } from './claims.ts';
import { filesToRunAgain, settle } from './second-run.ts';

function file(name: string, ...statuses: string[]): VitestReport['testResults'][number] {
  return {
    name,
    status: statuses.includes('failed') ? 'failed' : 'passed',
    startTime: 1_000_000,
    endTime: 1_060_000,
    assertionResults: statuses.map((status, index) => ({ status, ancestorTitles: [name], title: `test ${index}` })),
  };
}

const report = (...testResults: VitestReport['testResults']): VitestReport => ({ testResults, errors: [] });

describe('a second run of files with failed tests', () => {
  test('takes the failed files, and none when many failed', () => {
    expect(filesToRunAgain(report(file('a', 'passed'), file('b', 'passed', 'failed')))).toEqual(['b']);
    expect(filesToRunAgain(report(...['a', 'b', 'c', 'd'].map(name => file(name, 'failed'))))).toEqual([]);
  });

  test('takes none when they took long: there is no time for it', () => {
    const long = { ...file('a', 'failed'), endTime: 1_850_000 };
    expect(filesToRunAgain(report(long))).toEqual(['a']);
    expect(filesToRunAgain(report(long, file('b', 'failed')))).toEqual([]);
  });

  test('takes a file that could not be loaded', () => {
    const unloaded = { ...file('a'), status: 'failed' };
    expect(filesToRunAgain(report(unloaded))).toEqual(['a']);
  });

  test('a test that passes alone passes, and is named', () => {
    const first = report(file('a', 'passed'), file('b', 'failed', 'passed'));
    const second = report(file('b', 'passed', 'passed'));
    expect(settle(first, second)).toEqual({
      report: report(file('a', 'passed'), file('b', 'passed', 'passed')),
      unstable: ['b > test 0'],
    });
  });

  test('a test that fails again has failed, and so has one that fails only alone', () => {
    const first = report(file('b', 'failed', 'passed'));
    const second = report(file('b', 'failed', 'failed'));
    expect(settle(first, second)).toEqual({ report: second, unstable: [] });
  });

  test('an error that no test caught is judged by a run of its file alone, and fails the run where none is known', () => {
    const passed = [file('a', 'passed'), file('b', 'passed')] as const;
    const [known, unknown] = [
      { file: 'b', text: 'a timeout' },
      { file: null, text: 'out of memory' },
    ];
    const first = { ...report(...passed), errors: [known, unknown] };
    expect(filesToRunAgain(first)).toEqual(['b']);
    expect(settle(first, report(passed[1]))).toEqual({
      report: { ...report(...passed), errors: [unknown] },
      unstable: ['b: a timeout'],
    });
    const again = { ...report(passed[1]), errors: [known] };
    expect(settle(first, again)).toEqual({ report: { ...report(...passed), errors: [unknown, known] }, unstable: [] });
  });
});
