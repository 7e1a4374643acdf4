import { type Kysely, sql } from 'kysely';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startPostgres, type TestPostgres } from '../../../test/parts/postgres.ts';
import { describeWith } from '../../../test/probe.ts';
import type { PoolSpec } from '../../core/pool.ts';
import { createPools } from '../../registry/pool-writes.ts';
import { WRITE_OPERATIONS } from '../../server/write-operations.ts';
import { MIGRATIONS, type SchemaMigration } from '../migrations/migrations.ts';
import { listPools } from '../queries/pools.ts';
import { openStores } from '../stores.ts';
import { migratePostgres } from './postgres-schema.ts';

const PROGRAM = new URL('../../../test/registry/write-program.mjs', import.meta.url);

describeWith(['postgres'], 'the schema in PostgreSQL', () => {
  let server: TestPostgres;
  let url: string;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server?.close());
  beforeEach(async () => {
    url = await server.database();
  });

  const open = () =>
    openStores({ url, waitMs: 30_000, poolSize: 2 }, { operations: WRITE_OPERATIONS, program: PROGRAM });
  const namesIn = async () => {
    const stores = await open();
    const { rows } = await sql<{ name: string }>`select name from kysely_migration order by name`.execute(
      stores.database,
    );
    await stores.close();
    return rows.map(({ name }) => name);
  };
  const newest = Object.keys(MIGRATIONS).at(-1) as string;
  const tomorrow = (readableFrom?: string): Record<string, SchemaMigration> => ({
    ...MIGRATIONS,
    '9001-tomorrow': {
      up: async (db: Kysely<unknown>) => {
        await db.schema
          .alterTable('pools')
          .addColumn('note', 'text', column => column.notNull().defaultTo(''))
          .execute();
      },
      ...(readableFrom === undefined ? {} : { readableFrom }),
    },
  });

  test('replicas that start together migrate once and all start', async () => {
    const stores = await Promise.all(Array.from({ length: 4 }, open));
    for (const each of stores) await each.close();
    expect(await namesIn()).toEqual(Object.keys(MIGRATIONS));
  });

  test('every text column sorts by bytes, every integer has 64 bits, and bytes are bytea', async () => {
    const stores = await open();
    const { rows } = await sql<{ data_type: string; collation_name: string | null; count: number }>`
      select data_type, collation_name, count(*) as count from information_schema.columns
      where table_schema = 'public' and table_name not like 'kysely%' group by 1, 2 order by 1`.execute(
      stores.database,
    );
    await stores.close();
    expect(rows.map(({ data_type: type, collation_name: order }) => [type, order])).toEqual([
      ['bigint', null],
      ['bytea', null],
      ['text', 'C'],
    ]);
  });

  test('a version starts and works on the schema of the next version', async () => {
    await migratePostgres(url);
    await migratePostgres(url, tomorrow());
    const stores = await open();
    expect(await stores.writes.write(createPools, [{ id: 'a', group: 'g' } as PoolSpec])).toEqual([true]);
    expect((await listPools(stores.database, { id: '', group: '' }, 10, 0)).count).toBe(1);
    await stores.close();
    // The newer version can still migrate afterwards.
    await migratePostgres(url, tomorrow());
    expect(await namesIn()).toEqual([...Object.keys(MIGRATIONS), '9001-tomorrow']);
  });

  test.each([
    ['a schema whose migration excludes this version', '9001-tomorrow', false],
    ['a schema whose migration names this version', newest, true],
    ['a schema whose migration names an older version', '0005-one-table-of-instances', true],
  ])('a start on %s succeeds only if the migration permits it', async (_, readableFrom, mayRead) => {
    await migratePostgres(url, tomorrow(readableFrom));
    const start = migratePostgres(url);
    if (mayRead) await start;
    else {
      await expect(start).rejects.toMatchObject({
        ...{
          code: 'failed_precondition',
          message: expect.stringMatching(/newer version .* does not know 9001-tomorrow; /),
        },
      });
    }
  });

  test('a failed migration leaves no changes, and a later migration succeeds', async () => {
    const broken: Record<string, SchemaMigration> = {
      ...MIGRATIONS,
      '9001-broken': {
        up: async (db: Kysely<unknown>) => {
          await db.schema.createTable('half').addColumn('a', 'text').execute();
          throw new Error('the power went');
        },
      },
    };
    await expect(migratePostgres(url, broken)).rejects.toMatchObject({
      ...{ code: 'internal', message: expect.stringContaining('the power went') },
    });
    await migratePostgres(url);
    expect(await namesIn()).toEqual(Object.keys(MIGRATIONS));
  });
});
