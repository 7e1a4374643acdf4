import { isDeepStrictEqual } from 'node:util';
import { sql } from 'kysely';
import { ServiceError } from '../../src/core/error.ts';
import { WRITE_OPERATIONS } from '../../src/server/write-operations.ts';
import { type Database, openDatabase, type Tables } from '../../src/storage/database.ts';
import { withOrigin } from '../../src/storage/queries/feed.ts';
import { type DurableWrites, openDurableWrites, type WriteOperation } from '../../src/storage/writes/durable.ts';
import { Random } from '../parts/random.ts';
import { makeBefore, OPERATION_NAMES, type OperationName, type Step, stepOf } from './operations.ts';

export interface RaceStore {
  readonly database: Database;
  readonly writes: DurableWrites;
}

/** Answers of both operations and the stored records afterwards. */
interface Result {
  readonly outcomes: readonly unknown[];
  readonly tables: Readonly<Record<string, readonly unknown[]>>;
}

/** Tables that the operations of a pair do not affect. */
type Others = 'address_key' | 'installation' | 'nodes' | 'leases' | 'feed' | 'feed_counter';

/**
 * Tables to clear before each round and compare after it, with the columns that order their records. A
 * missing table is a compile error, since its records would give the race and the orders different starts.
 */
const TABLES: { readonly [Name in Exclude<keyof Tables, Others>]: readonly (keyof Tables[Name] & string)[] } = {
  agent_alarms: ['agent_id', 'name'],
  agent_states: ['agent_id'],
  async_calls: ['id'],
  instances: ['id'],
  functions: ['tenant', 'name', 'version'],
  function_totals: ['tenant', 'version'],
  reservations: ['tenant', 'name', 'version', 'label'],
  pools: ['id'],
  jobs: ['sequence'],
  job_schedules: ['tenant', 'id'],
  job_packages: ['tenant', 'name', 'node_id'],
  code_packages: ['tenant', 'sha256'],
  code_package_parts: ['blob', 'part'],
  secrets: ['tenant', 'name'],
  api_keys: ['hash'],
  template_builds: ['id'],
  template_files: ['tenant', 'hash'],
  calls: ['id'],
  call_totals: ['tenant'],
  call_recordings: ['tenant', 'kind', 'target'],
};

/** Every pair of operations, including each operation with itself. */
export const PAIRS: readonly (readonly [OperationName, OperationName])[] = OPERATION_NAMES.flatMap((first, index) =>
  OPERATION_NAMES.slice(index).map(second => [first, second] as const),
);

/**
 * Races pairs of durable writes from two stores of a database. It compares answers and records with both
 * orders, run one after the other in the embedded database. Returns how many rounds match only the first,
 * only the second, or both orders. Fails with the details when a round matches neither.
 */
export async function race(
  stores: readonly [RaceStore, RaceStore],
  {
    rounds,
    seed,
    onRound,
  }: { readonly rounds: number; readonly seed: number; readonly onRound?: (round: number) => void },
): Promise<{ readonly first: number; readonly second: number; readonly both: number }> {
  const random = new Random(seed);
  const memory = await openDatabase(':memory:');
  const model: RaceStore = { database: memory, writes: await openDurableWrites(memory, ':memory:') };
  const tally = { first: 0, second: 0, both: 0 };
  try {
    for (let round = 0; round < rounds; round++) {
      const [first, second] = PAIRS[round % PAIRS.length] as (typeof PAIRS)[number];
      const before = makeBefore(random);
      const pair: readonly [Step, Step] = [stepOf(first, random), stepOf(second, random)];
      const orders = [await inOrder(model, before, pair, [0, 1]), await inOrder(model, before, pair, [1, 0])];
      const raced = await atOnce(stores, before, pair);
      const [isFirst, isSecond] = orders.map(order => isDeepStrictEqual(raced, order));
      if (!isFirst && !isSecond) {
        const told = { seed, round, before, pair, raced, orders };
        throw new Error(`neither order gives what the race gave: ${JSON.stringify(told, null, 1)}`);
      }
      tally[isFirst && isSecond ? 'both' : isFirst ? 'first' : 'second'] += 1;
      onRound?.(round);
    }
    return tally;
  } finally {
    await model.writes.close();
    await memory.destroy();
  }
}

async function inOrder(
  model: RaceStore,
  before: readonly Step[],
  pair: readonly Step[],
  order: readonly number[],
): Promise<Result> {
  await begin(model, before);
  const outcomes: unknown[] = [];
  for (const index of order) outcomes[index] = await outcomeOf(model, pair[index] as Step);
  return { outcomes, tables: await readTables(model.database) };
}

async function atOnce(
  stores: readonly [RaceStore, RaceStore],
  before: readonly Step[],
  [first, second]: readonly [Step, Step],
): Promise<Result> {
  await begin(stores[0], before);
  const outcomes = await Promise.all([outcomeOf(stores[0], first), outcomeOf(stores[1], second)]);
  return { outcomes, tables: await readTables(stores[0].database) };
}

async function begin(store: RaceStore, before: readonly Step[]): Promise<void> {
  for (const table of Object.keys(TABLES)) await sql`delete from ${sql.table(table)}`.execute(store.database);
  for (const step of before) await outcomeOf(store, step);
}

/**
 * Returns the outcome that the caller sees: the result, code and text of a ServiceError, or just a failure.
 */
async function outcomeOf({ database, writes }: RaceStore, { name, args }: Step): Promise<unknown> {
  const operation = WRITE_OPERATIONS[name] as unknown as WriteOperation<readonly unknown[], unknown>;
  try {
    // On PostgreSQL, operations run with an origin, as on a cluster node, since some notify other nodes. An
    // embedded database has no other nodes.
    const isShared = database.getExecutor().adapter.supportsTransactionalDdl;
    const told: typeof operation = (transaction, ...rest) =>
      withOrigin(
        transaction,
        'node',
        () => undefined,
        () => operation(transaction, ...rest),
      );
    return { result: (await writes.write(isShared ? told : operation, ...args)) ?? null };
  } catch (error) {
    if (!(error instanceof ServiceError)) return { failed: true };
    return { code: error.code, number: error.number, message: error.message };
  }
}

async function readTables(database: Database): Promise<Result['tables']> {
  const entries = await Promise.all(
    Object.entries(TABLES).map(async ([table, keys]) => {
      const order = sql.join(keys.map(key => sql.ref(key)));
      const { rows } = await sql<object>`select * from ${sql.table(table)} order by ${order}`.execute(database);
      return [table, rows.map(row => ({ ...row }))] as const;
    }),
  );
  return Object.fromEntries(entries);
}
