import { Kysely, Migrator, sql, type Transaction } from 'kysely';
import { failedPrecondition, internal, messageOf } from '../core/error.ts';
import { MIGRATIONS } from './migrations/migrations.ts';
import type {
  AddressKeyTable,
  ApiKeyTable,
  AsyncCallTable,
  CallRecordingTable,
  CallTable,
  CallTotalTable,
  CodePackagePartTable,
  CodePackageTable,
  FeedCounterTable,
  FeedTable,
  FunctionTable,
  FunctionTotalTable,
  InstallationTable,
  InstanceTable,
  JobPackageTable,
  JobScheduleTable,
  JobTable,
  LeaseTable,
  NodeTable,
  PoolTable,
  ReservationTable,
  SecretTable,
  TemplateBuildTable,
  TemplateFilesTable,
} from './schema.ts';
import type { AgentAlarmTable, AgentStateTable } from './schema-agents.ts';
import { openSqlite, sqliteDialect } from './sqlite.ts';

/** All tables by name. `schema/` has the record types; `queries/` has the queries, one file per table. */
export interface Tables {
  address_key: AddressKeyTable;
  agent_alarms: AgentAlarmTable;
  agent_states: AgentStateTable;
  async_calls: AsyncCallTable;
  call_recordings: CallRecordingTable;
  calls: CallTable;
  call_totals: CallTotalTable;
  installation: InstallationTable;
  instances: InstanceTable;
  functions: FunctionTable;
  function_totals: FunctionTotalTable;
  reservations: ReservationTable;
  pools: PoolTable;
  jobs: JobTable;
  job_schedules: JobScheduleTable;
  job_packages: JobPackageTable;
  code_packages: CodePackageTable;
  code_package_parts: CodePackagePartTable;
  secrets: SecretTable;
  api_keys: ApiKeyTable;
  template_builds: TemplateBuildTable;
  template_files: TemplateFilesTable;
  nodes: NodeTable;
  leases: LeaseTable;
  feed: FeedTable;
  feed_counter: FeedCounterTable;
}

export type Database = Kysely<Tables>;

/**
 * The transaction of a write operation of `DurableWrites`. `Database` is a different type, so that no durable
 * write can bypass the write thread.
 */
export type WriteTransaction = Transaction<Tables>;

/**
 * Opens the database at `file` (`:memory:` for tests) and applies all missing migrations. Fails with
 * `internal`.
 */
export async function openDatabase(file: string): Promise<Database> {
  const database = connect(file);
  try {
    await migrate(database, file);
  } catch (error) {
    await database.destroy();
    throw error;
  }
  return database;
}

/** Opens the database at `file` without applying migrations. Fails with `internal`. */
export function connect(file: string): Database {
  return new Kysely<Tables>({ dialect: sqliteDialect(openSqlite(file)) });
}

/**
 * Applies all missing migrations. Fails with `failed_precondition` when a newer version wrote the database,
 * else with `internal`.
 */
export async function migrate(database: Database, file: string): Promise<void> {
  const migrator = new Migrator({ db: database, provider: { getMigrations: async () => MIGRATIONS } });
  const { error } = await migrator.migrateToLatest();
  if (!error) return;
  const unknown = await unknownMigrations(database).catch(() => []);
  if (unknown.length > 0) {
    throw failedPrecondition(
      `the database ${file} was written by a newer version of the service: this one does not know ${unknown.join(', ')}; start the newer version, or put a backup back from before it`,
      { cause: error },
    );
  }
  throw internal(`the database ${file} could not be brought up to date: ${messageOf(error)}`, { cause: error });
}

async function unknownMigrations(database: Database): Promise<readonly string[]> {
  const { rows } = await sql<{ name: string }>`select name from kysely_migration order by name`.execute(database);
  return rows.map(({ name }) => name).filter(name => !Object.hasOwn(MIGRATIONS, name));
}
