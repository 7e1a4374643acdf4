import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { startPostgres } from '../../test/parts/postgres.ts';
import { postgresBinary } from '../../test/probe.ts';
import { type Bed, type BenchRow, interleave, NotHere } from '../bed.ts';
import { load } from '../load.ts';
import { atMost, delay, type Measurement, median } from '../measure.ts';
import { cpuSeconds } from '../processes.ts';
import { invokePath, Rookery } from '../rookery.ts';
import { BODY } from './warm-invoke.ts';

const REPLICAS = 3;
const CALLERS = 32;
const AGENTS = 12;
const IDLE_MS = 5_000;

/**
 * Measures several replicas over a PostgreSQL server that the bench starts.
 * The row shows the cost of a forwarded call, and the database transactions of a warm call. It also shows the
 * cost of a call with 1, 2 and 3 replicas.
 * All replicas share the processors of this machine, so calls per second do not grow with their number.
 * Therefore processor time per call is measured.
 */
export const cluster: BenchRow = {
  name: 'cluster',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    if (postgresBinary() === null) throw new NotHere('no PostgreSQL server program is installed');
    await using postgres = await startPostgres();
    const directory = mkdtempSync(join(tmpdir(), 'rookery-bench-'));
    const replicas: Rookery[] = [];
    try {
      const url = await postgres.database();
      const secret = join(directory, 'secret');
      writeFileSync(secret, randomBytes(48).toString('base64'), { mode: 0o600 });
      for (let count = 0; count < REPLICAS; count++) {
        const settings = [`cluster.listen=127.0.0.1:${await freePort()}`, `cluster.secretFile=${secret}`];
        const env = { ROOKERY_STORAGE_URL: url };
        replicas.push(await Rookery.start(bed.python, { settings, env, nodeArgs: bed.nodeArgs }));
      }
      return [...(await forwarded(bed, replicas)), await queries(bed, replicas, url), ...(await growth(bed, replicas))];
    } finally {
      for (const replica of replicas) await replica.remove();
      rmSync(directory, { recursive: true, force: true });
    }
  },
};

async function forwarded(bed: Bed, [owner, other]: readonly Rookery[]): Promise<Measurement[]> {
  if (owner === undefined || other === undefined) throw new Error('there are no replicas');
  const embedded = await bed.rookery();
  const [id, embeddedId] = await Promise.all([owner.create(), embedded.create()]);
  const call = (to: Rookery, agent: string, connections: number) => () =>
    load({ url: to.url, paths: [invokePath(agent)], body: BODY, connections, durationMs: bed.turnMs });
  const one = await interleave(bed, {
    embedded: call(embedded, embeddedId, 1),
    local: call(owner, id, 1),
    forwarded: call(other, id, 1),
  });
  bed.raw.cluster = one;
  await Promise.all([owner.deleteAll([id]), embedded.deleteAll([embeddedId])]);
  const ms = (side: keyof typeof one, what: 'p50Micros' | 'p99Micros') =>
    median(one[side].map(result => result[what])) / 1000;
  return [
    {
      what: 'warm invoke over PostgreSQL, 1 caller, p50, against the embedded database',
      value: ms('local', 'p50Micros'),
      unit: 'ms',
      against: { what: 'embedded', value: ms('embedded', 'p50Micros') },
    },
    {
      what: 'warm invoke passed on by another replica, 1 caller, p50, against a local one',
      value: ms('forwarded', 'p50Micros'),
      unit: 'ms',
      against: { what: 'local', value: ms('local', 'p50Micros') },
      target: atMost('ratio', 2),
    },
    {
      what: 'warm invoke passed on by another replica, 1 caller, p99, against a local one',
      value: ms('forwarded', 'p99Micros'),
      unit: 'ms',
      against: { what: 'local', value: ms('local', 'p99Micros') },
    },
  ];
}

/**
 * Measures the transactions per forwarded call. Heartbeats and the feed also run in the idle period, so they
 * are subtracted.
 */
async function queries(bed: Bed, [owner, other]: readonly Rookery[], url: string): Promise<Measurement> {
  if (owner === undefined || other === undefined) throw new Error('there are no replicas');
  const client = new pg.Client(url);
  await client.connect();
  const count = async () => {
    // PostgreSQL sessions report their statistics after at most one second.
    await delay(1_500);
    const { rows } = await client.query<{ done: string }>(
      'select xact_commit + xact_rollback as done from pg_stat_database where datname = current_database()',
    );
    return Number(rows[0]?.done);
  };
  const id = await owner.create();
  await other.invoke(id, {});
  const before = await count();
  await delay(IDLE_MS);
  const idle = (await count()) - before;
  const from = await count();
  const calls = await load({
    ...{ url: other.url, paths: [invokePath(id)], body: BODY, connections: 1, durationMs: IDLE_MS },
  });
  const busy = (await count()) - from;
  await client.end();
  await owner.deleteAll([id]);
  bed.raw['cluster-queries'] = { idle, busy, calls };
  return {
    what: 'transactions for each warm call that is passed on, beyond those of an idle cluster',
    value: Math.max(0, (busy - idle) / calls.requests),
    unit: '',
    target: atMost('value', 0.01),
  };
}

async function growth(bed: Bed, replicas: readonly Rookery[]): Promise<Measurement[]> {
  const found: Measurement[] = [];
  for (let count = 1; count <= replicas.length; count++) {
    const used = replicas.slice(0, count);
    const ids = (await Promise.all(used.map(replica => replica.createMany(Math.ceil(AGENTS / count))))).flat();
    const paths = ids.map(invokePath);
    const pids = used.map(({ served }) => served.pid);
    const perSecond: number[] = [];
    const microsPerCall: number[] = [];
    for (let round = -1; round < bed.rounds; round++) {
      const before = cpuSeconds(pids);
      const connections = Math.floor(CALLERS / count);
      const results = await Promise.all(
        used.map(({ url }) => load({ url, paths, body: BODY, connections, durationMs: bed.longTurnMs })),
      );
      const requests = results.reduce((sum, result) => sum + result.requests, 0);
      if (round < 0) continue;
      perSecond.push(results.reduce((sum, result) => sum + result.requests / result.seconds, 0));
      microsPerCall.push(((cpuSeconds(pids) - before) / requests) * 1e6);
    }
    for (const [index, replica] of used.entries()) {
      const share = Math.ceil(AGENTS / count);
      await replica.deleteAll(ids.slice(index * share, (index + 1) * share));
    }
    const title = `${count === 1 ? '1 replica' : `${count} replicas`}, ${CALLERS} callers of ${AGENTS} agents at any of them`;
    found.push(
      { what: `${title}: calls per second`, value: median(perSecond), unit: '/s' },
      { what: `${title}: processor time of the replicas for each call`, value: median(microsPerCall), unit: 'µs' },
    );
  }
  return found;
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
