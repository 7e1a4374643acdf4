import pg from 'pg';
import { expect, test, vi } from 'vitest';
import type { Served } from '../../scripts/served.ts';
import { startPgBouncer } from '../parts/pgbouncer.ts';
import { startPostgres } from '../parts/postgres.ts';
import { MovingAddress, startStandby } from '../parts/postgres-standby.ts';
import { nodesSeenBy, ServedReplicas } from '../parts/served-replicas.ts';
import { describeWith } from '../probe.ts';

const TIMEOUT_MS = 180_000;
const WAIT = { timeout: 60_000, interval: 100 };

/**
 * Submits a job that needs a missing GPU: its record is acknowledged, and no process runs. Returns true on
 * success.
 */
async function submitWaiting(replica: Served, id: string): Promise<boolean> {
  const body = JSON.stringify({ entrypoint: 'true', submission_id: id, entrypoint_num_gpus: 1 });
  const answer = await fetch(`${replica.frontendUrl}/api/jobs/`, { method: 'POST', body });
  await answer.arrayBuffer();
  return answer.ok;
}

async function jobIds(replica: Served): Promise<readonly string[]> {
  const answer = await fetch(`${replica.frontendUrl}/api/jobs/`);
  return ((await answer.json()) as readonly { submission_id: string }[]).map(job => job.submission_id);
}

describeWith(['postgres', 'pgbouncer'], 'replicas behind a pooler of transactions', () => {
  test.each([
    ['alone', false],
    ['and listen past it, at storage.listenUrl', true],
  ])(
    'replicas behind a pooler of transactions form one service, %s',
    { timeout: TIMEOUT_MS },
    async (_, hasListenUrl) => {
      await using postgres = await startPostgres();
      const url = await postgres.database();
      await using pooler = await startPgBouncer(url);
      const env: Record<string, string> = hasListenUrl ? { ROOKERY_STORAGE_LISTEN_URL: url } : {};
      await using replicas = await ServedReplicas.start(pooler.url, 2, { env });
      const [one, other] = replicas.all as [Served, Served];
      await vi.waitFor(async () => expect(await nodesSeenBy(one)).toMatchObject({ isMember: true, count: 2 }), WAIT);
      const ids = Array.from({ length: 40 }, (_, index) => `job-${index}`);
      const done = await Promise.all(ids.map((id, index) => submitWaiting(index % 2 === 0 ? one : other, id)));
      expect(done.every(Boolean)).toBe(true);
      for (const replica of [one, other]) expect(new Set(await jobIds(replica))).toEqual(new Set(ids));
      if (hasListenUrl) expect(await sessions(url, 'rookery feed')).toHaveLength(2);
      // A replica that a busy machine held up rejoins.
      await vi.waitFor(async () => expect(await nodesSeenBy(other)).toMatchObject({ isMember: true, count: 2 }), WAIT);
    },
  );
});

async function sessions(url: string, application: string): Promise<readonly { readonly query: string }[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query('select query from pg_stat_activity where application_name = $1', [application])).rows;
  } finally {
    await client.end();
  }
}

describeWith(['postgres'], 'a failover of PostgreSQL', () => {
  test('a failover to a standby promoted behind the same address loses no acknowledged write', {
    timeout: TIMEOUT_MS,
  }, async () => {
    await using primary = await startPostgres();
    const url = new URL(await primary.database());
    await using standby = await startStandby(primary.url);
    await using address = await MovingAddress.start(Number(url.port));
    url.port = String(address.port);
    await using replicas = await ServedReplicas.start(url.href, 2);
    const [one, other] = replicas.all as [Served, Served];
    const acknowledged: string[] = [];
    let isOver = false;
    const submits = [one, other].map(async (replica, index) => {
      for (let count = 0; !isOver; count += 1) {
        const id = `job-${index}-${count}`;
        if (await submitWaiting(replica, id)) acknowledged.push(id);
      }
    });
    await vi.waitFor(() => expect(acknowledged.length).toBeGreaterThan(20), WAIT);
    await primary.kill();
    const before = acknowledged.length;
    await standby.promote();
    address.move(standby.port);
    await vi.waitFor(() => expect(acknowledged.length).toBeGreaterThan(before + 20), WAIT);
    isOver = true;
    await Promise.all(submits);
    for (const replica of [one, other]) {
      await vi.waitFor(
        async () => expect(await nodesSeenBy(replica)).toMatchObject({ isMember: true, count: 2 }),
        WAIT,
      );
      expect(await jobIds(replica)).toEqual(expect.arrayContaining(acknowledged));
    }
  });
});
