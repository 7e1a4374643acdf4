import { describe, expect, test } from 'vitest';
import type { AgentInstances, CreateInstance } from '../../src/agents/contract.ts';
import type { InstanceSpec, InstanceStatus } from '../../src/core/instance.ts';
import type { Call } from '../../src/runtime/call.ts';
import { callOf, specOf, TENANT } from '../agents/harness.ts';

/** Agents whose handler returns its event, and a way to let one exit on its own. */
export interface AgentsBed extends AsyncDisposable {
  readonly agents: AgentInstances;
  /** Lets the agent exit with code 3. Resolves when the service knows the exit. */
  end(id: string): Promise<void>;
}

const NEVER = new AbortController().signal;
const EXEC = { argv: ['true'], env: {}, workingDir: '', stdin: '', timeoutMs: 5_000, maxOutputBytes: 1000 };
const LOGS = { tail: null, sinceMs: null, follow: false };
const notFound = (id: string) => ({ code: 'not_found', message: `instance not found: ${id}` });

/** Methods that take the id of one agent. */
const ASKED: readonly [string, (agents: AgentInstances, tenant: string, id: string) => Promise<unknown>][] = [
  ['get', (agents, tenant, id) => agents.get(tenant, id)],
  ['invoke', (agents, tenant, id) => agents.invoke(tenant, id, callOf())],
  ['delete', (agents, tenant, id) => agents.delete(tenant, id, null)],
  ['restart', (agents, tenant, id) => agents.restart(tenant, id)],
  ['setExpiry', (agents, tenant, id) => agents.setExpiry(tenant, id, { ttlMs: 60_000 })],
  ['pause', (agents, tenant, id) => agents.pause(tenant, id)],
  ['resume', (agents, tenant, id) => agents.resume(tenant, id)],
  ['exec', (agents, tenant, id) => agents.exec(tenant, id, EXEC as never, NEVER)],
  ['stats', (agents, tenant, id) => agents.stats(tenant, id)],
  ['access', (agents, tenant, id) => agents.access(tenant, id)],
  ['logs', (agents, tenant, id) => agents.logs(tenant, id, LOGS, NEVER)],
];

/** Tests the contract `AgentInstances`. */
export function describeAgents(title: string, open: () => Promise<AgentsBed>): void {
  describe(`agent instances, ${title}`, () => {
    const create = (bed: AgentsBed, name: string, changes: Partial<InstanceSpec> = {}, more = {}) =>
      bed.agents.create({ spec: specOf(name, changes), ...more } satisfies CreateInstance);
    const list = async (bed: AgentsBed, query: Record<string, unknown> = {}) =>
      await bed.agents.list({ tenant: TENANT, limit: 100, cursor: null, ...query });

    test('create returns the same as get: RUNNING, never restarted, with the requested spec', async () => {
      await using bed = await open();
      const instance = await create(bed, 'a');
      expect(instance).toMatchObject({ status: 'RUNNING', statusReason: '', loadError: '', restarts: 0 });
      expect(instance.spec).toEqual(specOf('a'));
      expect(await bed.agents.get(TENANT, instance.id)).toEqual(instance);
      expect((await list(bed)).instances).toEqual([instance]);
    });

    test('a call returns the value of the handler', async () => {
      await using bed = await open();
      const { id } = await create(bed, 'a');
      const outcome = await bed.agents.invoke(TENANT, id, callOf({ n: 1 }) as Call);
      expect(outcome.ok && JSON.parse(outcome.data.toString())).toEqual({ n: 1 });
      expect(bed.agents.refusal(TENANT, id)).toBeUndefined();
    });

    test('a name belongs to one agent of its tenant and namespace, and a refusal names the holder', async () => {
      await using bed = await open();
      const { id } = await create(bed, 'a');
      const taken = { code: 'already_exists', message: 'agent ns/a already exists', body: { instance_id: id } };
      await expect(create(bed, 'a')).rejects.toMatchObject(taken);
      await create(bed, 'b');
      await create(bed, 'a', { namespace: 'other' });
      await create(bed, 'a', { tenant: 'other' });
      expect((await list(bed)).instances).toHaveLength(3);
      await bed.agents.delete(TENANT, id, 0);
      expect((await create(bed, 'a')).id).not.toBe(id);
    });

    test('exactly one of many concurrent creates of a name succeeds', async () => {
      await using bed = await open();
      const results = await Promise.allSettled(Array.from({ length: 5 }, () => create(bed, 'a')));
      const [won, ...more] = results.flatMap(result => (result.status === 'fulfilled' ? [result.value] : []));
      expect(more).toEqual([]);
      for (const result of results) {
        if (result.status === 'rejected') {
          expect(result.reason).toMatchObject({ code: 'already_exists', body: { instance_id: won?.id } });
        }
      }
      expect((await list(bed)).instances).toEqual([won]);
    });

    test('an idempotency key stands for one request of its tenant until its agent is deleted', async () => {
      await using bed = await open();
      const idempotency = { key: 'k', requestHash: 'h' };
      const same = await Promise.all([1, 2, 3].map(() => create(bed, 'a', {}, { idempotency })));
      expect(new Set(same.map(({ id }) => id)).size).toBe(1);
      const other = create(bed, 'b', {}, { idempotency: { key: 'k', requestHash: 'other' } });
      await expect(other).rejects.toMatchObject({
        code: 'already_exists',
        message: 'idempotency key k was used with another request',
      });
      const elsewhere = await create(bed, 'a', { tenant: 'other' }, { idempotency });
      expect(elsewhere.spec.tenant).toBe('other');
      const id = same[0]?.id as string;
      await bed.agents.delete(TENANT, id, 0);
      expect((await create(bed, 'a', {}, { idempotency })).id).not.toBe(id);
    });

    test.each(ASKED)('the operation %s answers another tenant as for an agent that does not exist', async (_, ask) => {
      await using bed = await open();
      const { id } = await create(bed, 'a');
      await expect(ask(bed.agents, 'other', id)).rejects.toMatchObject(notFound(id));
      await expect(ask(bed.agents, TENANT, 'nowhere')).rejects.toMatchObject(notFound('nowhere'));
      expect(bed.agents.refusal('other', id)).toBeUndefined();
      expect((await list(bed, { tenant: 'other' })).instances).toEqual([]);
      expect(await bed.agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 0 });
    });

    test.each(ASKED)('the operation %s answers not_found when the agent is deleted', async (_, ask) => {
      await using bed = await open();
      const { id } = await create(bed, 'a');
      await bed.agents.delete(TENANT, id, 0);
      await expect(ask(bed.agents, TENANT, id)).rejects.toMatchObject(notFound(id));
      expect((await list(bed)).instances).toEqual([]);
    });

    test('a restart keeps id, name and spec, and increments the counter', async () => {
      await using bed = await open();
      const before = await create(bed, 'a');
      for (const restarts of [1, 2]) {
        const after = await bed.agents.restart(TENANT, before.id);
        expect(after).toMatchObject({ id: before.id, spec: before.spec, status: 'RUNNING', restarts });
        expect(await bed.agents.get(TENANT, before.id)).toEqual(after);
      }
    });

    test('an agent that exited is FAILED: calls return the reason, access is refused, logs remain', async () => {
      await using bed = await open();
      const { id } = await create(bed, 'a');
      await bed.end(id);
      const reason = 'instance exited: exit code 3';
      expect(await bed.agents.get(TENANT, id)).toMatchObject({ status: 'FAILED', statusReason: reason });
      await expect(bed.agents.invoke(TENANT, id, callOf())).rejects.toMatchObject({
        code: 'not_found',
        message: expect.stringMatching(new RegExp(`^instance not found: ${id}: it is FAILED \\(${reason}\\); `)),
      });
      const notRunning = { code: 'failed_precondition', message: `instance ${id} is not running` };
      await expect(bed.agents.exec(TENANT, id, EXEC as never, NEVER)).rejects.toMatchObject(notRunning);
      await expect(bed.agents.access(TENANT, id)).rejects.toMatchObject(notRunning);
      for await (const chunk of await bed.agents.logs(TENANT, id, LOGS, NEVER)) expect(chunk).toBeInstanceOf(Buffer);
      await expect(create(bed, 'a')).rejects.toMatchObject({ code: 'already_exists' });
    });

    test('a FAILED agent can be restarted and deleted', async () => {
      await using bed = await open();
      const [restarted, deleted] = [await create(bed, 'a'), await create(bed, 'b')];
      for (const { id } of [restarted, deleted]) await bed.end(id);
      const after = await bed.agents.restart(TENANT, restarted.id);
      expect(after).toMatchObject({ status: 'RUNNING', statusReason: '', restarts: 1 });
      expect((await bed.agents.invoke(TENANT, restarted.id, callOf())).ok).toBe(true);
      await bed.agents.delete(TENANT, deleted.id, null);
      expect((await list(bed)).instances.map(({ id }) => id)).toEqual([restarted.id]);
    });

    test('a list is ordered by id, and its cursors lead through all pages', async () => {
      await using bed = await open();
      const ids = [];
      for (const name of ['a', 'b', 'c', 'd']) ids.push((await create(bed, name)).id);
      const found: string[] = [];
      let cursor: string | null = null;
      let pages = 0;
      do {
        const page = await list(bed, { limit: 2, cursor });
        found.push(...page.instances.map(({ id }) => id));
        cursor = page.nextCursor;
        pages++;
      } while (cursor !== null);
      expect(found).toEqual(ids.toSorted());
      expect(pages).toBe(2);
      expect(await list(bed, { cursor: found.at(-1) })).toEqual({ instances: [], nextCursor: null });
    });

    test.each<[string, Record<string, unknown>, readonly string[]]>([
      ['a namespace', { namespace: 'ns' }, ['a', 'b']],
      ['a name', { name: 'a' }, ['a', 'a']],
      ['a namespace and a name', { namespace: 'other', name: 'a' }, ['a']],
      ['a status', { status: 'FAILED' satisfies InstanceStatus }, ['b']],
      ['a name that no agent has', { name: 'nobody' }, []],
    ])('a list can be filtered by %s', async (_, query, names) => {
      await using bed = await open();
      await create(bed, 'a');
      const { id } = await create(bed, 'b');
      await create(bed, 'a', { namespace: 'other' });
      await bed.end(id);
      expect((await list(bed, query)).instances.map(({ spec }) => spec.name).toSorted()).toEqual(names);
    });
  });
}
