import { leftoversIn, Removals } from '../../src/lib/removals.ts';

/** As the service makes them, for parts that are tested alone. */
export function removalsIn(dataDir: string): Removals {
  return new Removals({ directory: leftoversIn(dataDir), report: () => undefined });
}
