import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPostgres, type TestPostgres } from '../../../test/parts/postgres.ts';
import { describeWith } from '../../../test/probe.ts';
import { describeDurableWrites } from '../../../test/suites/durable-writes.ts';
import { describeStoredAgents } from '../../../test/suites/stored-agents.ts';
import { describeStores } from '../../../test/suites/stores.ts';
import { WRITE_OPERATIONS } from '../../server/write-operations.ts';
import { openStores } from '../stores.ts';

const PROGRAM = new URL('../../../test/registry/write-program.mjs', import.meta.url);

describeWith(['postgres'], 'stores over PostgreSQL', () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server?.close());

  const open = (url: string, waitMs = 10_000, poolSize = 5) =>
    openStores({ url, waitMs, poolSize }, { operations: WRITE_OPERATIONS, program: PROGRAM });

  const databases = new Map<string, string>();
  describeDurableWrites(
    'PostgreSQL',
    async file => {
      const url = databases.get(file) ?? (await server.database());
      databases.set(file, url);
      return await open(url);
    },
    { isOrdered: false },
  );
  describeStores('PostgreSQL', async () => await open(await server.database()));
  describeStoredAgents('PostgreSQL', 'explain', async () => await open(await server.database()));

  test('openStores refuses a database whose encoding cannot keep every text', async () => {
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    await client.query("create database ascii encoding 'SQL_ASCII' locale_provider libc locale 'C' template template0");
    await client.end();
    const start = open(server.url.replace(/postgres$/, 'ascii'));
    await expect(start).rejects.toMatchObject({
      ...{ code: 'failed_precondition', message: expect.stringMatching(/SQL_ASCII, .* encoding 'UTF8'/) },
    });
  });

  test('a transaction on the database is refused with a hint at write operations', async () => {
    const stores = await open(await server.database());
    const transaction = stores.database.transaction().execute(async () => undefined);
    await expect(transaction).rejects.toThrow('has to be a write operation of DurableWrites');
    await stores.close();
  });
});
