import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openSqlite } from '../../src/storage/sqlite.ts';
import type { Bed, BenchRow } from '../bed.ts';
import { atMost, delay, type Measurement, median } from '../measure.ts';
import { cpuSeconds } from '../processes.ts';
import { Rookery } from '../rookery.ts';

const READY_MS = 300_000;
/** Least interval of reconciler passes, so that several happen while the stall is measured. */
const SETTINGS = ['reconcileIntervalMs=1000'];
const STALL_MS = 5000;
const PROBE_MS = 1;

interface Figures {
  readonly readyMs: number;
  readonly cpuMs: number;
  readonly memoryMb: number;
  readonly stallMs: number;
  readonly byStatusMs: number;
  readonly byNameMs: number;
  readonly deleteSecretMs: number;
}

/** Measures what records of ended agents cost a service: its start, its passes, its lists and its deletes. */
export const endedAgents: BenchRow = {
  name: 'ended-agents',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const count = bed.isQuick ? 20_000 : 100_000;
    const options = { settings: SETTINGS, nodeArgs: bed.nodeArgs, readyMs: READY_MS };
    const few = await Rookery.start(bed.python, options);
    const many = await Rookery.start(bed.python, options).catch(async error => {
      await few.remove();
      throw error;
    });
    const sides = { few, many };
    const file = join(many.served.dataDir, 'rookery.db');
    const figures: Record<keyof typeof sides, Figures[]> = { few: [], many: [] };
    try {
      for (const side of Object.values(sides)) {
        await side.create();
        await side.served.end();
      }
      multiply(file, count);
      for (let round = 0; round < bed.rounds; round++) {
        for (const name of ['few', 'many'] as const) {
          const startedAt = performance.now();
          sides[name] = await sides[name].again();
          figures[name].push(await figuresOf(sides[name], performance.now() - startedAt));
          await sides[name].served.end();
        }
      }
    } finally {
      for (const side of Object.values(sides)) await side.served.end();
      reduce(file);
      await Promise.all(Object.values(sides).map(side => side.remove()));
    }
    bed.raw['ended-agents'] = { count, figures };
    return rowsOf(count, figures);
  },
};

function rowsOf(count: number, { few, many }: Record<'few' | 'many', readonly Figures[]>): Measurement[] {
  const of = (figures: readonly Figures[], key: keyof Figures) => median(figures.map(each => each[key]));
  const row = (what: string, key: keyof Figures, unit: 'ms' | 'MB', bound?: number): Measurement => ({
    what,
    value: of(many, key),
    unit,
    against: { what: 'one agent', value: of(few, key) },
    ...(bound !== undefined && { target: atMost('value', bound) }),
  });
  return [
    row(`start with ${count} records of ended agents, until it is ready`, 'readyMs', 'ms', 1500),
    { ...row('its processor time', 'cpuMs', 'ms'), target: atMost('ratio', 1.2) },
    row('its memory after the start', 'memoryMb', 'MB', of(few, 'memoryMb') + 20),
    row('longest answer of /healthz during reconciler passes', 'stallMs', 'ms', 25),
    row('list of the RUNNING agents', 'byStatusMs', 'ms', 5),
    row('list of the agents with a name', 'byNameMs', 'ms', 5),
    row('delete of a secret', 'deleteSecretMs', 'ms', 10),
  ];
}

async function figuresOf(rookery: Rookery, readyMs: number): Promise<Figures> {
  const pid = rookery.served.pid;
  const cpuMs = cpuSeconds([pid]) * 1000;
  const memoryMb = residentMb(pid);
  const ask = async (method: string, path: string, body?: unknown) => {
    const startedAt = performance.now();
    const answer = await fetch(`${rookery.url}${path}`, {
      method,
      ...(body !== undefined && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text}`);
    return performance.now() - startedAt;
  };
  const timed = async (run: () => Promise<number>) => {
    const times: number[] = [];
    for (let index = 0; index < 5; index++) times.push(await run());
    return median(times);
  };
  let stallMs = 0;
  for (const untilMs = performance.now() + STALL_MS; performance.now() < untilMs; await delay(PROBE_MS))
    stallMs = Math.max(stallMs, await ask('GET', '/healthz'));
  return {
    ...{ readyMs, cpuMs, memoryMb, stallMs },
    byStatusMs: await timed(() => ask('GET', '/api/agent?status=RUNNING')),
    byNameMs: await timed(() => ask('GET', '/api/agent?name=nobody')),
    deleteSecretMs: await timed(async () => {
      await ask('PUT', '/api/secrets/bench', { value: 'x' });
      return await ask('DELETE', '/api/secrets/bench');
    }),
  };
}

function residentMb(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}

/** Adds ended copies of the only agent. */
function multiply(file: string, count: number): void {
  const database = openSqlite(file);
  try {
    const columns = database.prepare('pragma table_info(instances)').all() as { name: string }[];
    const id = "printf('%08x-0000-4000-8000-000000000000', n.i)";
    const changed: Readonly<Record<string, string>> = {
      ...{ id, owner_key: id, name: "'ended-' || n.i", status: "'FAILED'", status_reason: "'it ended'" },
      ...{ handle: 'null', idempotency_key: 'null', request_hash: 'null' },
      spec: "json_set(spec, '$.name', 'ended-' || n.i)",
    };
    database.exec(
      `with recursive n(i) as (select 1 union all select i + 1 from n where i < ${count})
       insert into instances (${columns.map(({ name }) => name).join()})
       select ${columns.map(({ name }) => changed[name] ?? name).join()} from n, (select * from instances limit 1)`,
    );
  } finally {
    database.close();
  }
}

/** Removes the records of ended agents, so that the last server has nothing to delete. */
function reduce(file: string): void {
  const database = openSqlite(file);
  try {
    database.exec("delete from instances where status = 'FAILED'");
  } finally {
    database.close();
  }
}
