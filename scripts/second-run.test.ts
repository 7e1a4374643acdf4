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

describe('a second run of files with failed tests', () => {
  test('takes the failed files, and none when many failed', () => {
    expect(filesToRunAgain({ testResults: [file('a', 'passed'), file('b', 'passed', 'failed')] })).toEqual(['b']);
    expect(filesToRunAgain({ testResults: ['a', 'b', 'c', 'd'].map(name => file(name, 'failed')) })).toEqual([]);
  });

  test('takes none when they took long: there is no time for it', () => {
    const long = { ...file('a', 'failed'), endTime: 1_850_000 };
    expect(filesToRunAgain({ testResults: [long] })).toEqual(['a']);
    expect(filesToRunAgain({ testResults: [long, file('b', 'failed')] })).toEqual([]);
  });

  test('takes a file that could not be loaded', () => {
    const unloaded = { ...file('a'), status: 'failed' };
    expect(filesToRunAgain({ testResults: [unloaded] })).toEqual(['a']);
  });

  test('a test that passes alone passes, and is named', () => {
    const first = { testResults: [file('a', 'passed'), file('b', 'failed', 'passed')] };
    const second = { testResults: [file('b', 'passed', 'passed')] };
    expect(settle(first, second)).toEqual({
      report: { testResults: [file('a', 'passed'), file('b', 'passed', 'passed')] },
      unstable: ['b > test 0'],
    });
  });

  test('a test that fails again has failed, and so has one that fails only alone', () => {
    const first = { testResults: [file('b', 'failed', 'passed')] };
    const second = { testResults: [file('b', 'failed', 'failed')] };
    expect(settle(first, second)).toEqual({ report: second, unstable: [] });
  });
});
