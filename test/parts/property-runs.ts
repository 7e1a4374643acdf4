import { currentScope } from '../scope.ts';

const QUICK_SHARE = 3;

/** Returns the number of random cases of a property: all, or a third of them in `npm test`. */
export function propertyRuns(all: number): number {
  return currentScope() === 'quick' ? Math.ceil(all / QUICK_SHARE) : all;
}
