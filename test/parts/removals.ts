import { leftoversIn, Removals } from '../../src/lib/removals.ts';

/** Returns removals as the service makes them, for tests of single parts. */
export function removalsIn(dataDir: string): Removals {
  return new Removals({ directory: leftoversIn(dataDir), report: () => undefined });
}
