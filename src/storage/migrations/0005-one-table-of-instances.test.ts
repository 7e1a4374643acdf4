import { Migrator } from 'kysely';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Harness, specOf, TENANT } from '../../../test/agents/harness.ts';
import { NO_SANDBOX } from '../../core/instance.ts';
import { CallLimiter } from '../../instances/call-limiter.ts';
import { TenantBudget } from '../../lib/budgets.ts';
import { connect, type Database, migrate } from '../database.ts';
import { findAgentByIdempotencyKey } from '../queries/agents.ts';
import { findInstance, listInstancesOfNode } from '../queries/instances.ts';
import { listOpenJobs } from '../queries/jobs.ts';
import { MIGRATIONS } from './migrations.ts';

const KEY = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };
const HANDLE = { version: 1, driver: 'fake', instanceId: 'x', endpoint: { kind: 'unix', path: '/nowhere' }, data: {} };

let database: Database;
/** The database with the types of the tables from before the migration. */
// biome-ignore lint/suspicious/noExplicitAny: their types are gone with them.
let before: any;

beforeEach(async () => {
  database = connect(':memory:');
  before = database;
  const released = Object.entries(MIGRATIONS).filter(([name]) => name < '0005');
  const migrator = new Migrator({
    db: database,
    provider: { getMigrations: async () => Object.fromEntries(released) },
  });
  const { error } = await migrator.migrateToLatest();
  expect(error).toBeUndefined();
});
afterEach(() => database.destroy());

async function insertAgent(id: string, changes: Record<string, unknown> = {}): Promise<void> {
  const values = {
    id,
    tenant: TENANT,
    namespace: 'ns',
    name: id,
    status: 'RUNNING',
    status_reason: '',
    load_error: '',
    restarts: 0,
    node_id: 'node-1',
    spec: JSON.stringify(specOf(id, { cpuMillis: 700, memoryMb: 300, concurrency: 5, callTimeoutMs: 9000 })),
    sandbox: JSON.stringify({ ...NO_SANDBOX, sandboxId: '17' }),
    handle: JSON.stringify({ ...HANDLE, instanceId: id }),
    secret: 'secret',
    created_at_ms: 1000,
    started_at_ms: 2000,
    idempotency_key: null,
    request_hash: null,
    ...changes,
  };
  await before.insertInto('instances').values(values).execute();
}

async function insertOfFunction(id: string, changes: Record<string, unknown> = {}): Promise<void> {
  const values = {
    id,
    node_id: 'node-1',
    tenant: TENANT,
    urn: 'urn:f',
    revision_id: 'r7',
    group_key: JSON.stringify(KEY),
    sandbox_type: 'fake',
    handle: JSON.stringify({ ...HANDLE, instanceId: id }),
    secret: 'secret',
    concurrency: 3,
    max_call_ms: 4000,
    stop_grace_ms: 12_000,
    code_source: '/code',
    started_at_ms: 3000,
    ...changes,
  };
  await before.insertInto('service_instances').values(values).execute();
}

async function insertJob(sequence: number, changes: Record<string, unknown> = {}): Promise<void> {
  const values = {
    sequence,
    tenant: TENANT,
    id: `job-${sequence}`,
    fingerprint: 'f',
    node_id: 'node-1',
    spec: '{}',
    status: 'PENDING',
    message: '',
    error_type: '',
    exit_code: null,
    attempt: 1,
    not_before_ms: 0,
    instance_id: '',
    handle: null,
    pid: '',
    stop_reason: '',
    submitted_at_ms: 1,
    started_at_ms: null,
    ended_at_ms: null,
    ...changes,
  };
  await before.insertInto('jobs').values(values).execute();
}

test('migration 0005 keeps all fields of an agent, with the epoch from restarts and the size from the spec', async () => {
  await insertAgent('a', { idempotency_key: 'k', request_hash: 'h' });
  await insertAgent('b', {
    status: 'FAILED',
    status_reason: 'instance exited: exit code 3',
    restarts: 4,
    handle: null,
  });
  await migrate(database, ':memory:');
  const a = await findInstance(database, 'a');
  expect(a).toEqual({
    id: 'a',
    owner: { kind: 'agent', key: 'a' },
    tenant: TENANT,
    status: 'RUNNING',
    statusReason: '',
    loadError: '',
    epoch: 1,
    nodeId: 'node-1',
    sandboxType: 'fake',
    cpuMillis: 700,
    memoryMb: 300,
    concurrency: 5,
    maxCallMs: 9000,
    spec: expect.stringContaining('"callTimeoutMs":9000'),
    sandbox: { ...NO_SANDBOX, sandboxId: '17' },
    handle: JSON.stringify({ ...HANDLE, instanceId: 'a' }),
    secret: 'secret',
    createdAtMs: 1000,
    startedAtMs: 2000,
    restartAtMs: 0,
    ttlMs: 0,
    expiresAtMs: 0,
    pausedAtMs: 0,
    wakes: 0,
    restartsInRow: 0,
  });
  expect(await findAgentByIdempotencyKey(database, TENANT, 'k')).toEqual({ stored: a, requestHash: 'h' });
  expect(await findInstance(database, 'b')).toMatchObject({
    status: 'FAILED',
    statusReason: 'instance exited: exit code 3',
    epoch: 5,
    handle: null,
  });
});

test('migration 0005 turns a function instance into a RUNNING record with the data of its owner', async () => {
  await insertOfFunction('f');
  await migrate(database, ':memory:');
  const row = await findInstance(database, 'f');
  expect(row).toMatchObject({
    owner: { kind: 'function', key: 'urn:f' },
    tenant: TENANT,
    status: 'RUNNING',
    epoch: 1,
    nodeId: 'node-1',
    sandboxType: 'fake',
    cpuMillis: 500,
    memoryMb: 128,
    concurrency: 3,
    maxCallMs: 4000,
    handle: JSON.stringify({ ...HANDLE, instanceId: 'f' }),
    secret: 'secret',
    startedAtMs: 3000,
  });
  expect(JSON.parse(row?.spec ?? '')).toEqual({
    revisionId: 'r7',
    key: KEY,
    codeSource: '/code',
    stopGraceMs: 12_000,
    stuckGraceMs: 12_000,
  });
});

test('migration 0005 creates a record for starting and running jobs only', async () => {
  const handle = JSON.stringify({ ...HANDLE, instanceId: 'runs' });
  await insertJob(1);
  await insertJob(2, { instance_id: 'starts' });
  await insertJob(3, { instance_id: 'runs', handle, status: 'RUNNING', started_at_ms: 5000 });
  await insertJob(4, { instance_id: 'ended', handle, status: 'SUCCEEDED', started_at_ms: 1, ended_at_ms: 2 });
  await insertJob(5, { instance_id: 'failed', status: 'FAILED', ended_at_ms: 2 });
  await migrate(database, ':memory:');
  const rows = await listInstancesOfNode(database, 'node-1');
  expect(
    rows.map(({ id, owner, status, handle, startedAtMs }) => ({ id, owner, status, handle, startedAtMs })),
  ).toEqual([
    { id: 'starts', owner: { kind: 'job', key: '2' }, status: 'CREATING', handle: null, startedAtMs: 0 },
    { id: 'runs', owner: { kind: 'job', key: '3' }, status: 'RUNNING', handle, startedAtMs: 5000 },
  ]);
  const open = await listOpenJobs(database, 'node-1');
  expect(open.map(({ job }) => [job.sequence, job.instanceId])).toEqual([
    [1, ''],
    [2, 'starts'],
    [3, 'runs'],
  ]);
});

test('names are unique among agents and not among other instances', async () => {
  await insertAgent('a');
  await insertOfFunction('f');
  await insertOfFunction('g');
  await migrate(database, ':memory:');
  expect(await listInstancesOfNode(database, 'node-1')).toHaveLength(3);
  const same = database.updateTable('instances').set({ namespace: 'ns', name: 'a', tenant: TENANT });
  await same.where('id', '=', 'f').execute();
  await expect(same.set({ owner_kind: 'agent' }).where('id', '=', 'f').execute()).rejects.toThrow('UNIQUE');
});

test('migration 0005 runs on an empty database', async () => {
  await migrate(database, ':memory:');
  expect(await listInstancesOfNode(database, 'node-1')).toEqual([]);
});

test('the instance layer adopts running instances of an earlier version and fails or removes dead ones', async () => {
  await using beside = await Harness.open();
  const ids = { agent: await beside.create('a', { handler: 'count' }), fn: await beside.create('f') };
  await beside.value(ids.agent);
  const running = await listInstancesOfNode(beside.database, 'node-1');
  await beside.closeServer();
  for (const { id, handle, secret, spec } of running) {
    if (id === ids.agent) await insertAgent(id, { handle, secret, spec });
    else await insertOfFunction(id, { handle, secret });
  }
  await insertAgent('dead');
  await insertOfFunction('gone');
  await insertJob(1, { instance_id: 'never' });
  await migrate(database, ':memory:');
  const adopted: string[] = [];
  const instances = beside.newServer({ database });
  instances.registerOwner('function', {
    limiter: new CallLimiter({ maxWaitingCalls: 1, bytes: new TenantBudget(1024) }),
    adopted: live => void adopted.push(live.id),
  });
  await instances.start();
  await vi.waitFor(async () => {
    await instances.reconcile();
    const rows = await listInstancesOfNode(database, 'node-1');
    expect(rows.map(({ id, status }) => [id, status]).toSorted()).toEqual(
      [
        [ids.agent, 'RUNNING'],
        [ids.fn, 'RUNNING'],
        ['dead', 'FAILED'],
        ['never', 'CREATING'],
      ].toSorted(),
    );
  });
  expect(await beside.value(ids.agent)).toBe(2);
  expect(adopted).toEqual([ids.fn]);
  expect(await instances.commands.recover('never', new AbortController().signal)).toBe('never');
});
