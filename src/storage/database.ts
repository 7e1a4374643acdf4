import { Kysely, Migrator } from 'kysely';
import { internal } from '../core/error.ts';
import type { AsyncCallTable } from './async-calls.ts';
import type { FunctionTable, FunctionTotalTable } from './functions.ts';
import type { InstanceTable } from './instances.ts';
import type { JobScheduleTable } from './job-schedules.ts';
import type { JobTable } from './jobs.ts';
import { MIGRATIONS } from './migrations/migrations.ts';
import type { PoolTable } from './pools.ts';
import type { ReservationTable } from './reservations.ts';
import type { ServiceInstanceTable } from './service-instances.ts';
import { openSqlite } from './sqlite.ts';

/** Every table, by its name. One file per table beside this one has its row type and its queries. */
export interface Tables {
  async_calls: AsyncCallTable;
  service_instances: ServiceInstanceTable;
  instances: InstanceTable;
  functions: FunctionTable;
  function_totals: FunctionTotalTable;
  reservations: ReservationTable;
  pools: PoolTable;
  jobs: JobTable;
  job_schedules: JobScheduleTable;
}

export type Database = Kysely<Tables>;

/** Opens the database at `file` (`:memory:` for tests) and brings it to the newest migration. Fails with `internal`. */
export async function openDatabase(file: string): Promise<Database> {
  const { dialect } = openSqlite(file);
  const database = new Kysely<Tables>({ dialect });
  const migrator = new Migrator({ db: database, provider: { getMigrations: async () => MIGRATIONS } });
  const { error } = await migrator.migrateToLatest();
  if (error) {
    await database.destroy();
    throw internal(`the database ${file} could not be brought up to date`, { cause: error });
  }
  return database;
}
