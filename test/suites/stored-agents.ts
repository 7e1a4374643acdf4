import { CompiledQuery, createQueryId, type KyselyPlugin, type RootOperationNode, sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { OwnerKind } from '../../src/core/instance.ts';
import type { Database } from '../../src/storage/database.ts';
import { listExpiringAgents } from '../../src/storage/queries/agent-lifetimes.ts';
import {
  type AgentFilter,
  findAgentByName,
  findAgentIds,
  listAgents,
  listAgentsWithSandbox,
  listPlannedRestarts,
} from '../../src/storage/queries/agents.ts';
import {
  findInstances,
  insertInstance,
  listIdsWithSandbox,
  listInstancesWithSandbox,
  MAX_IDS,
  type StoredInstance,
  updateInstance,
} from '../../src/storage/queries/instances.ts';
import { storedInstance } from '../parts/stored-instance.ts';
import type { OpenDatabase } from './stores.ts';

/** Number of ended agents: enough that a query planner prefers an index to reading all. */
const ENDED = 2 * MAX_IDS + 100;
const NODE = storedInstance().nodeId;
const FILTER: AgentFilter = { tenant: 'default', limit: 10, after: null };

/**
 * Tests queries over many ended agents, on each database: what they return, and that an index finds it.
 * `open` makes an empty database; `explain` begins a query for a plan.
 */
export function describeStoredAgents(title: string, explain: string, open: () => Promise<OpenDatabase>): void {
  describe(`records of many ended agents, ${title}`, () => {
    let opened: OpenDatabase;
    let database: Database;
    const ended = Array.from({ length: ENDED }, (_, index) => `ended-${String(index).padStart(4, '0')}`);

    const insert = async (id: string, changes: Partial<StoredInstance> = {}) => {
      const row = storedInstance({ id, ...changes });
      const isAgent = row.owner.kind === 'agent';
      await insertInstance(database, row, isAgent ? { namespace: 'ns', name: id, idempotency: undefined } : undefined);
      return row;
    };

    beforeAll(async () => {
      opened = await open();
      database = opened.database;
      for (const id of ended) await insert(id, { status: 'FAILED', spec: JSON.stringify({ pad: 'x'.repeat(500) }) });
      await insert('running', { status: 'RUNNING' });
      await insert('paused', { status: 'PAUSED' });
      await insert('elsewhere', { status: 'RUNNING', nodeId: 'other' });
      await insert('elsewhere-ended', { status: 'FAILED', nodeId: 'other' });
      const owned = (kind: OwnerKind) => ({ owner: { kind, key: 'key' } });
      await insert('function', { ...owned('function'), status: 'RUNNING' });
      await insert('failed-job', { ...owned('job'), status: 'FAILED' });
      const planned = await insert('planned', { status: 'FAILED' });
      await updateInstance(database, planned, ['FAILED'], { restartAtMs: 5 });
      await insert('sleeping', { status: 'SLEEPING' });
      const expiring = await insert('expiring', { status: 'FAILED' });
      await updateInstance(database, expiring, ['FAILED'], { expiresAtMs: 5 });
      await sql`analyze instances`.execute(database);
    });
    afterAll(() => opened?.close());

    /** Returns the plans of the queries that `run` executes. */
    async function plansOf(run: (watched: Database) => Promise<unknown>): Promise<string> {
      const nodes: RootOperationNode[] = [];
      const plugin: KyselyPlugin = {
        transformQuery: ({ node }) => {
          nodes.push(node);
          return node;
        },
        transformResult: async ({ result }) => result,
      };
      await run(database.withPlugin(plugin));
      const plans = nodes.map(async node => {
        const query = database.getExecutor().compileQuery(node, createQueryId());
        const { rows } = await database.executeQuery(
          CompiledQuery.raw(`${explain} ${query.sql}`, [...query.parameters]),
        );
        return JSON.stringify(rows);
      });
      return (await Promise.all(plans)).join('\n');
    }

    const idsOf = (rows: readonly { readonly id: string }[]) => rows.map(({ id }) => id).sort();

    test('the records that may have a sandbox are all except ended and sleeping agents', async () => {
      const expected = ['failed-job', 'function', 'paused', 'running'];
      expect(idsOf(await listInstancesWithSandbox(database, NODE))).toEqual(expected);
      expect((await listIdsWithSandbox(database, NODE)).toSorted()).toEqual(expected);
      expect(idsOf(await listInstancesWithSandbox(database, NODE, 'function'))).toEqual(['function']);
      expect(idsOf(await listAgentsWithSandbox(database, NODE))).toEqual(['paused', 'running']);
    });

    test('an index finds the records that may have a sandbox', async () => {
      const runs: ((db: Database) => Promise<unknown>)[] = [
        db => listInstancesWithSandbox(db, NODE),
        db => listInstancesWithSandbox(db, NODE, 'function'),
        db => listIdsWithSandbox(db, NODE),
        db => listAgentsWithSandbox(db, NODE),
      ];
      for (const run of runs) expect(await plansOf(run)).toContain('instances_sandboxes');
    });

    test('an index finds planned restarts and agents with an end', async () => {
      expect(idsOf(await listPlannedRestarts(database, NODE))).toEqual(['planned']);
      expect(idsOf(await listExpiringAgents(database, NODE))).toEqual(['expiring']);
      expect(await plansOf(db => listPlannedRestarts(db, NODE))).toContain('instances_restarts');
      expect(await plansOf(db => listExpiringAgents(db, NODE))).toContain('instances_expiries');
    });

    test('an index finds a page of agents with a state, and agents with a name', async () => {
      const running = { ...FILTER, status: 'RUNNING' } as const;
      expect(idsOf(await listAgents(database, running))).toEqual(['elsewhere', 'running']);
      expect(idsOf(await listAgents(database, { ...FILTER, name: 'paused' }))).toEqual(['paused']);
      const all = await listAgents(database, {
        ...FILTER,
        status: 'FAILED',
        after: { id: 'ended-0004', startedAtMs: 0 },
      });
      expect(all.map(({ id }) => id)).toEqual(ended.slice(5, 15));
      expect(await plansOf(db => listAgents(db, running))).toContain('instances_status');
      expect(await plansOf(db => listAgents(db, { ...FILTER, name: 'paused' }))).toMatch(/instances_(tenant_)?name/);
      expect(await plansOf(db => findAgentByName(db, 'default', 'ns', 'paused'))).toMatch(/instances_(tenant_)?name/);
    });

    test('instances and agents are found by more ids than one query takes', async () => {
      const found: string[] = [];
      for await (const some of findInstances(database, [...ended, 'failed-job', 'unknown'])) {
        expect(some.length).toBeLessThanOrEqual(MAX_IDS);
        found.push(...some.map(({ id }) => id));
      }
      expect(found.toSorted()).toEqual([...ended, 'failed-job']);
      const agents = await findAgentIds(database, NODE, [...ended, 'failed-job', 'elsewhere', 'unknown']);
      expect([...agents].sort()).toEqual(ended);
    });
  });
}
