import { existsSync } from 'node:fs';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeWith } from '../probe.ts';
import { startPostgres, type TestPostgres } from './postgres.ts';

describeWith(['postgres'], 'the PostgreSQL of the tests', () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.close());

  const ask = async (url: string, text: string) => {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined);
    await client.connect();
    return (await client.query(text).finally(() => client.end())).rows;
  };

  test('the PostgreSQL of the tests provides a new and empty database at each request', async () => {
    const [first, second] = [await server.database(), await server.database()];
    await ask(first, 'create table t (a int)');
    await expect(ask(second, 'select * from t')).rejects.toThrow('does not exist');
  });

  test('the PostgreSQL of the tests keeps committed rows through a restart and a kill', async () => {
    const url = await server.database();
    await ask(url, 'create table t (a int)');
    for (const again of [() => server.restart(), () => server.kill().then(() => server.start())]) {
      await ask(url, 'insert into t values (1)');
      await again();
    }
    expect(await ask(url, 'select count(*)::int as n from t')).toEqual([{ n: 2 }]);
  });

  test('the PostgreSQL of the tests answers no query while paused, and continues when resumed', async () => {
    const url = await server.database();
    server.pause();
    let isAnswered = false;
    const answer = ask(url, 'select 1 as one').finally(() => {
      isAnswered = true;
    });
    await new Promise(resolve => setImmediate(resolve));
    expect(isAnswered).toBe(false);
    server.resume();
    expect(await answer).toEqual([{ one: 1 }]);
  });

  test('the PostgreSQL of the tests leaves no directory and no process when closed', async () => {
    const other = await startPostgres();
    const [row] = await ask(other.url, "select current_setting('data_directory') as data, pg_backend_pid() as pid");
    await other.close();
    expect(existsSync(row.data)).toBe(false);
    await expect(ask(other.url, 'select 1')).rejects.toThrow();
  });
});
