import { type Generated, type Kysely, sql } from 'kysely';

/** The columns that this migration reads, as the migrations before this one made them. */
interface Tables {
  instances: {
    id: string;
    spec: string;
    restarts: Generated<number>;
    epoch: number;
    owner_kind: string;
    owner_key: string;
    sandbox_type: string;
    cpu_millis: number;
    memory_mb: number;
    concurrency: number;
    max_call_ms: number;
    tenant: string;
    namespace: string;
    name: string;
    status: string;
    status_reason: string;
    load_error: string;
    node_id: string;
    sandbox: string;
    handle: string | null;
    secret: string;
    created_at_ms: number;
    started_at_ms: number;
  };
  service_instances: {
    id: string;
    node_id: string;
    tenant: string;
    urn: string;
    revision_id: string;
    group_key: string;
    sandbox_type: string;
    handle: string;
    secret: string;
    concurrency: number;
    max_call_ms: number;
    stop_grace_ms: number;
    code_source: string;
    started_at_ms: number;
  };
  jobs: {
    sequence: number;
    tenant: string;
    node_id: string;
    status: string;
    instance_id: string;
    handle: string | null;
    started_at_ms: number | null;
  };
}

const NO_SANDBOX = JSON.stringify({
  sandboxId: '',
  nodeIp: '',
  sandboxIp: '',
  portMappings: [],
  isolation: [],
  warnings: [],
});

/**
 * Moves agents, instances of functions, jobs and builds into one table. Runs in one transaction. Does nothing
 * when it has run already: a server may be killed before the migration is noted.
 */
export async function up(unknownDb: Kysely<unknown>): Promise<void> {
  // PostgreSQL runs migrations in one transaction, and had no instances before this migration.
  if (unknownDb.isTransaction) return await moveAll(unknownDb as Kysely<Tables>);
  const tables = await unknownDb.introspection.getTables();
  const instances = tables.find(({ name }) => name === 'instances');
  if (instances?.columns.some(({ name }) => name === 'owner_kind')) return;
  await (unknownDb as Kysely<Tables>).transaction().execute(moveAll);
}

async function moveAll(db: Kysely<Tables>): Promise<void> {
  const text = (name: string) =>
    db.schema
      .alterTable('instances')
      .addColumn(name, 'text', column => column.notNull().defaultTo(''))
      .execute();
  const number = (name: string) =>
    db.schema
      .alterTable('instances')
      .addColumn(name, 'bigint', column => column.notNull().defaultTo(0))
      .execute();
  for (const name of ['owner_kind', 'owner_key', 'sandbox_type']) await text(name);
  for (const name of ['epoch', 'cpu_millis', 'memory_mb', 'concurrency', 'max_call_ms']) await number(name);
  // Only agents have names.
  await db.schema.dropIndex('instances_name').execute();
  await db.schema
    .createIndex('instances_name')
    .unique()
    .on('instances')
    .columns(['tenant', 'namespace', 'name'])
    .where(sql.ref('owner_kind'), '=', 'agent')
    .execute();
  await db.schema.createIndex('instances_node').on('instances').column('node_id').execute();
  await moveAgents(db);
  await db.schema.alterTable('instances').dropColumn('restarts').execute();
  await moveInstancesOfFunctions(db);
  await db.schema.dropTable('service_instances').execute();
  await moveJobs(db);
  await db.schema.alterTable('jobs').dropColumn('handle').execute();
}

async function moveAgents(db: Kysely<Tables>): Promise<void> {
  for (const { id, spec, restarts } of await db.selectFrom('instances').select(['id', 'spec', 'restarts']).execute()) {
    const agent = JSON.parse(spec) as Record<string, unknown>;
    await db
      .updateTable('instances')
      .set({
        owner_kind: 'agent',
        owner_key: id,
        epoch: restarts + 1,
        sandbox_type: String(agent.sandboxType),
        cpu_millis: Number(agent.cpuMillis),
        memory_mb: Number(agent.memoryMb),
        concurrency: Number(agent.concurrency),
        max_call_ms: Number(agent.callTimeoutMs),
      })
      .where('id', '=', id)
      .execute();
  }
}

async function moveInstancesOfFunctions(db: Kysely<Tables>): Promise<void> {
  for (const row of await db.selectFrom('service_instances').selectAll().execute()) {
    const key = JSON.parse(row.group_key) as { cpuMillis: number; memoryMb: number };
    await db
      .insertInto('instances')
      .values({
        ...inherited(row),
        owner_kind: 'function',
        owner_key: row.urn,
        sandbox_type: row.sandbox_type,
        cpu_millis: key.cpuMillis,
        memory_mb: key.memoryMb,
        concurrency: row.concurrency,
        max_call_ms: row.max_call_ms,
        status: 'RUNNING',
        handle: row.handle,
        secret: row.secret,
        started_at_ms: row.started_at_ms,
        spec: JSON.stringify({
          revisionId: row.revision_id,
          key,
          codeSource: row.code_source,
          stopGraceMs: row.stop_grace_ms,
          stuckGraceMs: row.stop_grace_ms,
        }),
      })
      .execute();
  }
}

async function moveJobs(db: Kysely<Tables>): Promise<void> {
  const open = await db
    .selectFrom('jobs')
    .selectAll()
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .where('instance_id', '!=', '')
    .execute();
  for (const row of open) {
    await db
      .insertInto('instances')
      .values({
        ...inherited({ ...row, id: row.instance_id }),
        owner_kind: 'job',
        owner_key: String(row.sequence),
        sandbox_type: 'process',
        cpu_millis: 0,
        memory_mb: 0,
        concurrency: 0,
        max_call_ms: 0,
        status: row.handle === null ? 'CREATING' : 'RUNNING',
        handle: row.handle,
        secret: '',
        started_at_ms: row.started_at_ms ?? 0,
        spec: '{}',
      })
      .execute();
  }
}

function inherited(row: { id: string; tenant: string; node_id: string; started_at_ms: number | null }) {
  return {
    id: row.id,
    tenant: row.tenant,
    namespace: '',
    name: '',
    epoch: 1,
    status_reason: '',
    load_error: '',
    node_id: row.node_id,
    sandbox: NO_SANDBOX,
    created_at_ms: row.started_at_ms ?? 0,
  };
}
