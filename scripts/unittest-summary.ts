export interface Tally {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/**
 * What a run of Python's unittest says at its end: `Ran 12 tests in 0.1s`, then `OK` or `FAILED (failures=1, errors=2, skipped=3)`.
 * A run that crashed, or found no test (which looks like success otherwise), is one failure.
 */
export function readUnittest(output: string, exitCode: number): Tally {
  const ran = Number(/^Ran (\d+) tests? in /m.exec(output)?.[1] ?? 0);
  const summary = /^(?:OK|FAILED) \((.*)\)\s*$/m.exec(output)?.[1] ?? '';
  const count = (word: string) => Number(new RegExp(`(?:^|, )${word}=(\\d+)`).exec(summary)?.[1] ?? 0);
  const failed = count('failures') + count('errors') + count('unexpected successes');
  const skipped = count('skipped');
  if (ran === 0 || (exitCode !== 0 && failed === 0)) return { passed: 0, failed: 1, skipped: 0 };
  return { passed: Math.max(0, ran - failed - skipped), failed, skipped };
}
