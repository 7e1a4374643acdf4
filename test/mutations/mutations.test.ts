import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { isInScope, testFiles } from '../scope.ts';
import { MUTATIONS } from './mutations.ts';

describe('npm run mutations', () => {
  test.each(MUTATIONS)('npm run mutations can insert the fault: $fault', ({ file, find, replace, tests }) => {
    const parts = readFileSync(join(ROOT, file), 'utf8').split(find);
    expect(parts).toHaveLength(2);
    expect(replace).not.toBe(find);
    const known = testFiles(ROOT).filter(path => isInScope(path, 'quick'));
    expect(tests.filter(part => !known.some(path => path.includes(part)))).toEqual([]);
  });
});
