import type { FunctionChange } from '../../src/registry/change-feed.ts';
import { createRegistry, type Registry, type RegistryOptions } from '../../src/registry/registry.ts';
import { type Database, openDatabase } from '../../src/storage/database.ts';
import { openDurableWrites } from '../../src/storage/writes/durable.ts';

export interface TestRegistry extends AsyncDisposable {
  readonly registry: Registry;
  readonly database: Database;
  readonly changes: FunctionChange[];
  /** The registry's clock, which only the test moves. */
  readonly clock: { nowMs: number };
}

export const START_MS = Date.UTC(2026, 10, 20, 10, 0, 0, 0);

/** Creates a registry over a database in memory with a stopped clock; `await using` closes both. */
export async function testRegistry(options: Partial<RegistryOptions> = {}): Promise<TestRegistry> {
  const database = options.database ?? (await openDatabase(':memory:'));
  const writes = await openDurableWrites(database, ':memory:');
  const clock = { nowMs: START_MS };
  const changes: FunctionChange[] = [];
  const registry = createRegistry({
    database,
    writes,
    business: 'yrk',
    clusters: ['cluster001', 'cluster002'],
    now: () => clock.nowMs,
    exists: async path => !path.startsWith('/missing'),
    poolImages: null,
    ...options,
  });
  registry.onChange(change => void changes.push(change));
  return {
    registry,
    database,
    changes,
    clock,
    async [Symbol.asyncDispose]() {
      await writes.close();
      await database.destroy();
    },
  };
}
