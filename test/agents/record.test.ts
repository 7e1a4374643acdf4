import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KyselyPlugin } from 'kysely';
import { describe, expect, test, vi } from 'vitest';
import { PreviousLogs } from '../../src/agents/previous-logs.ts';
import { deadlineExceeded, unavailable } from '../../src/core/error.ts';
import type { InstanceRows } from '../../src/instances/rows.ts';
import { toSandboxSpec } from '../../src/instances/sandbox-spec.ts';
import { openDatabase } from '../../src/storage/database.ts';
import { CODE, fakePackages, gate, Harness, ledgerOf, specOf, TENANT } from './harness.ts';

const RULES = { maxProcesses: 10, network: 'host', requireIsolation: false } as const;

/** Returns a database plugin that makes writes of the given kind fail or answer late. */
function faulty(kind: 'InsertQueryNode' | 'UpdateQueryNode') {
  const seen = new WeakSet<object>();
  const faults = { fails: false, answers: Promise.resolve(), count: 0 };
  const plugin: KyselyPlugin = {
    transformQuery: ({ node, queryId }) => {
      if (node.kind !== kind) return node;
      if (faults.fails) throw unavailable('the disk is full, on demand');
      seen.add(queryId);
      faults.count += 1;
      return node;
    },
    transformResult: async ({ result, queryId }) => {
      if (seen.has(queryId)) await faults.answers;
      return result;
    },
  };
  return { plugin, faults };
}

async function rows(harness: Harness) {
  return await harness.database.selectFrom('instances').select(['id', 'status', 'handle']).execute();
}

describe('the record of a create', () => {
  test('the record of a create is inserted while the sandbox starts and before the client gets an answer', async () => {
    const { plugin, faults } = faulty('InsertQueryNode');
    await using harness = await Harness.open({ plugins: [plugin] });
    const { opened, open } = gate();
    faults.answers = opened;
    const answered = vi.fn();
    const creating = harness.create('a').then(answered);
    await vi.waitFor(() => expect([faults.count, harness.driver.runningIds.length]).toEqual([1, 1]));
    await new Promise(resolve => setImmediate(resolve));
    expect(answered).not.toHaveBeenCalled();
    open();
    await creating;
  });

  test('the record of a create shows the agent as CREATING while the sandbox starts slowly', async () => {
    await using harness = await Harness.open();
    const { opened, open } = gate();
    harness.driver.faults.startGate = opened;
    const creating = harness.create('a');
    await vi.waitFor(async () => expect(await rows(harness)).toMatchObject([{ status: 'CREATING', handle: null }]));
    expect(harness.driver.runningIds).toEqual([]);
    open();
    const id = await creating;
    expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING' });
  });

  test('a create fails with the reason and leaves no sandbox when its record cannot be inserted', async () => {
    const { plugin, faults } = faulty('InsertQueryNode');
    await using harness = await Harness.open({ plugins: [plugin] });
    faults.fails = true;
    await expect(harness.create('a')).rejects.toMatchObject({ code: 'unavailable', message: /the disk is full/ });
    expect(harness.driver.instanceIds).toEqual([]);
    faults.fails = false;
    await harness.create('a');
  });

  test('exactly one of many concurrent creates of a name gets the record, and one sandbox remains', async () => {
    await using harness = await Harness.open();
    const made = await Promise.allSettled(Array.from({ length: 8 }, () => harness.create('a')));
    expect(made.map(({ status }) => status).toSorted()).toEqual(['fulfilled', ...Array(7).fill('rejected')]);
    const [id] = made.flatMap(result => (result.status === 'fulfilled' ? [result.value] : []));
    expect(harness.driver.instanceIds).toEqual([id]);
    expect(await rows(harness)).toMatchObject([{ id, status: 'RUNNING' }]);
    await expect(harness.create('a')).rejects.toMatchObject({ code: 'already_exists', body: { instance_id: id } });
    expect(harness.driver.instanceIds).toEqual([id]);
  });

  test('a refusal of a used name names its agent when the machine has no capacity either', async () => {
    await using harness = await Harness.open({ ledger: ledgerOf(1) });
    const id = await harness.create('a');
    await expect(harness.create('a')).rejects.toMatchObject({ code: 'already_exists', body: { instance_id: id } });
    await expect(harness.create('b')).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(harness.driver.starts).toHaveLength(1);
    expect(await rows(harness)).toMatchObject([{ id }]);
  });

  test('a sandbox without a record after a server death is the only one that the next server removes before it serves', async () => {
    const { plugin, faults } = faulty('InsertQueryNode');
    await using harness = await Harness.open({ plugins: [plugin], orphanGraceMs: 3_600_000 });
    const { opened, open } = gate();
    faults.answers = opened;
    const creating = harness.create('a');
    creating.catch(() => undefined);
    await vi.waitFor(() => expect(harness.driver.runningIds).toHaveLength(1));
    const next = harness.newServer({ database: await openDatabase(':memory:') });
    await next.start();
    expect(harness.driver.instanceIds).toEqual([]);
    const spec = toSandboxSpec('stray', 'secret', { ...specOf('b'), env: {}, secretVariables: [] }, RULES);
    await harness.driver.start(spec, new AbortController().signal);
    await next.reconcile();
    expect(harness.driver.instanceIds).toEqual(['stray']);
    open();
  });

  test('the record of a create is inserted before the start when a start is expensive', async () => {
    const { plugin, faults } = faulty('InsertQueryNode');
    await using harness = await Harness.open({ plugins: [plugin], cheapDrivers: [] });
    const { opened, open } = gate();
    faults.answers = opened;
    const creating = harness.create('a');
    await vi.waitFor(() => expect(faults.count).toBe(1));
    await new Promise(resolve => setImmediate(resolve));
    expect(harness.driver.starts).toEqual([]);
    open();
    await creating;
    expect(await rows(harness)).toMatchObject([{ status: 'RUNNING' }]);
  });

  describe('a record that was stored without a confirmation', () => {
    const lost = unavailable('the connection to the database was lost before it confirmed a write');

    /** Makes the next write by `name` succeed and loses its answer. */
    function loses(rows: InstanceRows, name: 'insert' | 'move') {
      const write = rows[name].bind(rows) as (...args: unknown[]) => Promise<boolean>;
      vi.spyOn(rows, name).mockImplementationOnce(async (...args: unknown[]) => {
        await write(...args);
        throw lost;
      });
    }

    test('an unconfirmed record is removed with the failed create, and its name is free', async () => {
      await using harness = await Harness.open({ cheapDrivers: [] });
      loses(harness.instances.rows, 'insert');
      await expect(harness.create('a')).rejects.toBe(lost);
      expect(await rows(harness)).toEqual([]);
      await harness.create('a');
    });

    test('an unconfirmed record becomes RUNNING when its state can be seen', async () => {
      await using harness = await Harness.open({ cheapDrivers: [] });
      loses(harness.instances.rows, 'move');
      const id = await harness.create('a', { handler: 'count' });
      expect(await rows(harness)).toMatchObject([{ id, status: 'RUNNING' }]);
      expect(await harness.value(id)).toBe(1);
    });

    test('an unconfirmed record is recognized as ended after a restart, because its sandbox was removed', async () => {
      await using harness = await Harness.open({ cheapDrivers: [] });
      const id = await harness.create('a');
      const { rows: written } = harness.instances;
      const move = written.move.bind(written);
      vi.spyOn(written, 'move').mockImplementation(async (...event) => {
        const isWritten = await move(...event);
        if (event[1] !== 'started') return isWritten;
        vi.mocked(written.move).mockRestore();
        vi.spyOn(written, 'find').mockRejectedValueOnce(unavailable('the database is away'));
        throw lost;
      });
      await expect(harness.agents.restart(TENANT, id)).rejects.toBe(lost);
      await vi.waitFor(async () => expect(await rows(harness)).toMatchObject([{ status: 'FAILED' }]), 10_000);
      expect(harness.driver.runningIds).toEqual([]);
    });

    test('an unconfirmed record is removed with its sandbox when the state cannot be seen at that moment', async () => {
      await using harness = await Harness.open({ cheapDrivers: [] });
      loses(harness.instances.rows, 'move');
      vi.spyOn(harness.instances.rows, 'find').mockRejectedValueOnce(unavailable('the database is away'));
      vi.spyOn(harness.instances.rows, 'end').mockRejectedValueOnce(unavailable('the database is away'));
      await expect(harness.create('a')).rejects.toBe(lost);
      expect(await rows(harness)).toEqual([]);
      expect(harness.driver.instanceIds).toEqual([]);
      await harness.create('a');
    });
  });
});

describe('the RUNNING state of an agent', () => {
  test('the RUNNING state is visible to every read and every end after the create is answered', async () => {
    await using harness = await Harness.open();
    const [a, b, c] = await Promise.all(['a', 'b', 'c'].map(name => harness.create(name)));
    const query = { tenant: TENANT, status: 'RUNNING' as const, limit: 10, cursor: null };
    expect((await harness.agents.list(query)).instances).toHaveLength(3);
    const d = await harness.create('d');
    expect(await harness.agents.get(TENANT, d)).toMatchObject({ status: 'RUNNING' });
    const e = await harness.create('e');
    await harness.agents.delete(TENANT, e, null);
    const f = await harness.create('f');
    expect((await harness.agents.restart(TENANT, f)).restarts).toBe(1);
    const g = await harness.create('g');
    harness.driver.kill(g);
    await vi.waitFor(async () => expect((await harness.agents.get(TENANT, g)).status).toBe('FAILED'));
    expect(harness.driver.runningIds.toSorted()).toEqual([a, b, c, d, f].toSorted());
  });

  test('the RUNNING state is reported before the end when the delete follows at once', async () => {
    const kinds: string[] = [];
    await using harness = await Harness.open({ changed: ({ kind }) => void kinds.push(kind) });
    const id = await harness.create('a');
    await harness.agents.delete(TENANT, id, null);
    expect(kinds).toEqual(['created', 'ready', 'stopping', 'ended']);
    expect(await rows(harness)).toEqual([]);
    expect(harness.driver.instanceIds).toEqual([]);
  });

  test('the RUNNING state is written before the create is answered, and a failed write leaves no residue', async () => {
    const { plugin, faults } = faulty('UpdateQueryNode');
    await using harness = await Harness.open({ plugins: [plugin] });
    faults.fails = true;
    await expect(harness.create('a')).rejects.toMatchObject({ code: 'unavailable', message: /the disk is full/ });
    expect(await rows(harness)).toEqual([]);
    expect(harness.driver.instanceIds).toEqual([]);
    faults.fails = false;
    const id = await harness.create('a');
    expect(await rows(harness)).toMatchObject([{ id, status: 'RUNNING', handle: expect.any(String) }]);
  });
});

describe('the record of a delete', () => {
  test('the record of a deleted agent is removed with the last files before the delete is answered', async () => {
    await using harness = await Harness.open();
    const id = await harness.create('a');
    const { opened, open } = gate();
    harness.driver.faults.removeGate = opened;
    const answered = vi.fn();
    const deleting = harness.agents.delete(TENANT, id, null).then(answered);
    await vi.waitFor(async () => expect(await rows(harness)).toEqual([]));
    await new Promise(resolve => setImmediate(resolve));
    expect(answered).not.toHaveBeenCalled();
    open();
    await deleting;
    expect(harness.driver.instanceIds).toEqual([]);
  });

  test('the next server removes the files of a delete when the previous server was killed in between', async () => {
    await using harness = await Harness.open();
    const id = await harness.create('a');
    const { opened, open } = gate();
    harness.driver.faults.removeGate = opened;
    const deleting = harness.agents.delete(TENANT, id, null);
    await vi.waitFor(async () => expect(await rows(harness)).toEqual([]));
    harness.driver.faults.removeGate = undefined;
    expect(harness.driver.instanceIds).toEqual([id]);
    await harness.newServer().start();
    expect(harness.driver.instanceIds).toEqual([]);
    open();
    await deleting;
  });

  test('the record of a deleted agent is removed when its last files cannot be removed, which become an orphan', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'rookery-logs-'));
    const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
    const { packages, users } = fakePackages();
    const ledger = ledgerOf(1);
    try {
      await using harness = await Harness.open({ packages, ledger, previousLogs: new PreviousLogs(directory, log) });
      const id = await harness.create('a', { mounts: [CODE] });
      await harness.agents.restart(TENANT, id);
      expect([await readdir(directory), [...users], ledger.reservations.by.agent.memoryMb]).toEqual([
        [id],
        [`${id}.2`],
        128,
      ]);
      const late = Promise.reject(deadlineExceeded('the removal takes too long'));
      late.catch(() => undefined);
      harness.driver.faults.removeGate = late;
      await harness.agents.delete(TENANT, id, null);
      harness.driver.faults.removeGate = undefined;
      await expect(harness.agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
      expect([await readdir(directory), [...users], ledger.reservations.by.agent.memoryMb]).toEqual([[], [], 0]);
      expect(harness.driver.instanceIds).toEqual([id]);
      await harness.instances.reconcile();
      expect(harness.driver.instanceIds).toEqual([]);
      await harness.create('a');
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });

  test('the record of a deleted agent stays while its sandbox cannot be removed, and later no log of an earlier run remains', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'rookery-logs-'));
    const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
    try {
      await using harness = await Harness.open({ previousLogs: new PreviousLogs(directory, log) });
      const id = await harness.create('a');
      await harness.agents.restart(TENANT, id);
      harness.driver.faults.removeFailures = 1;
      await expect(harness.agents.delete(TENANT, id, null)).rejects.toMatchObject({ code: 'unavailable' });
      expect(await rows(harness)).toMatchObject([{ id, status: 'STOPPING' }]);
      await harness.instances.reconcile();
      expect([await rows(harness), await readdir(directory)]).toEqual([[], []]);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
});
