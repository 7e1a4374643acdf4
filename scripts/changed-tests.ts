import { groupOf } from '../test/groups.ts';
import { isInScope, testFiles } from '../test/scope.ts';
import { bin, ROOT, run } from './command.ts';

/**
 * Returns the test files for a change, as paths below the root.
 * They are the files that import a changed file, and those of `npm test` in the groups of the changed files.
 * `since` is the commit with which the work tree is compared. `HEAD` means uncommitted changes only.
 */
export async function testsOfChange(since: string): Promise<readonly string[]> {
  const changed = [
    ...(await git('diff', '--name-only', since)),
    ...(await git('ls-files', '-o', '--exclude-standard')),
  ];
  const groups = new Set(changed.map(path => groupOf(path)));
  const ofGroups = testFiles(ROOT).filter(file => isInScope(file, 'quick') && groups.has(groupOf(file)));
  return [...new Set([...ofGroups, ...(await importersOf(since))])].sort();
}

async function git(...args: readonly string[]): Promise<readonly string[]> {
  return lines('git', args);
}

async function importersOf(since: string): Promise<readonly string[]> {
  const listed = await lines(bin('vitest'), ['list', '--filesOnly', '--changed', since]);
  return listed.flatMap(line => /(\S+\.test\.ts)$/.exec(line)?.[1] ?? []);
}

async function lines(program: string, args: readonly string[]): Promise<readonly string[]> {
  const { code, output } = await run(program, args, { capture: true });
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} ended with ${code}:\n${output}`);
  return output.split('\n').filter(line => line !== '');
}
