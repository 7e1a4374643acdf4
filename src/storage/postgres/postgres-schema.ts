import {
  DataTypeNode,
  Kysely,
  type KyselyPlugin,
  type Migration,
  Migrator,
  type OperationNode,
  OperationNodeTransformer,
  type PluginTransformQueryArgs,
  type PluginTransformResultArgs,
  PostgresAdapter,
  PostgresDialect,
  type QueryResult,
  RawNode,
  type RootOperationNode,
  sql,
  type UnknownRow,
} from 'kysely';
import { failedPrecondition, internal, messageOf } from '../../core/error.ts';
import { MIGRATIONS, type SchemaMigration } from '../migrations/migrations.ts';
import { loadPool, placeOf, poolConfig } from './postgres-connections.ts';

/** Lock of the migrations: replicas that start together wait for the one that migrates. */
const LOCK = 'rookery: migrations';
const MAX_MIGRATION_MS = 600_000;

/** A program can read the schema after `migration` if its newest migration is `readable_from` or newer. */
interface SchemaTables {
  kysely_migration: { name: string };
  schema_readers: { migration: string; readable_from: string };
}

type Schema = Kysely<SchemaTables>;

/**
 * Applies the missing `migrations` to the database at `url`, once even with concurrent callers. Leaves a
 * schema of a newer version unchanged when this version can read it. Fails with `failed_precondition` when it
 * cannot, and with `internal` when a migration fails.
 */
export async function migratePostgres(
  url: string,
  migrations: Readonly<Record<string, SchemaMigration>> = MIGRATIONS,
): Promise<void> {
  // One connection holds the lock in a transaction, which a connection pooler keeps on one session. The other
  // one migrates.
  const pool = new (await loadPool())(poolConfig(url, 2));
  pool.on('error', () => undefined);
  // A connection in use reports the end of its server both to the query and here.
  pool.on('connect', client => void client.on('error', () => undefined));
  const database: Schema = new Kysely<SchemaTables>({
    dialect: new UnlockedDialect({ pool }),
    plugins: [new PostgresTypes()],
  });
  try {
    await database.transaction().execute(async holder => {
      await sql`select set_config('lock_timeout', ${`${MAX_MIGRATION_MS}`}, true)`.execute(holder);
      await sql`select pg_advisory_xact_lock(hashtextextended(${LOCK}, 0))`.execute(holder);
      if (await isReadable(database, migrations, url)) await run(database, migrations);
    });
  } catch (error) {
    throw error instanceof Error && error.name === 'ServiceError'
      ? error
      : internal(`the database ${placeOf(url)} could not be brought up to date: ${messageOf(error)}`, { cause: error });
  } finally {
    await database.destroy();
  }
}

/** Returns false when a newer version has migrated the database and this version can read it unchanged. */
async function isReadable(
  database: Schema,
  migrations: Readonly<Record<string, SchemaMigration>>,
  url: string,
): Promise<boolean> {
  await database.schema
    .createTable('schema_readers')
    .ifNotExists()
    .addColumn('migration', 'text', column => column.primaryKey())
    .addColumn('readable_from', 'text', column => column.notNull())
    .execute();
  const { rows } = await sql<{ found: string | null }>`select to_regclass('kysely_migration')::text as found`.execute(
    database,
  );
  if (rows[0]?.found == null) return true;
  const applied = await database
    .selectFrom('kysely_migration')
    .leftJoin('schema_readers', 'schema_readers.migration', 'kysely_migration.name')
    .select(['kysely_migration.name', 'schema_readers.readable_from'])
    .orderBy('kysely_migration.name')
    .execute();
  const unknown = applied.filter(({ name }) => !Object.hasOwn(migrations, name));
  if (unknown.length === 0) return true;
  const closed = unknown.filter(({ readable_from: from }) => from === null || !Object.hasOwn(migrations, from));
  if (closed.length === 0) return false;
  throw failedPrecondition(
    `the database ${placeOf(url)} was written by a newer version of the service, which this one cannot read: it does not know ${closed.map(({ name }) => name).join(', ')}; start the newer version, or put a backup back from before it`,
  );
}

async function run(database: Schema, migrations: Readonly<Record<string, SchemaMigration>>): Promise<void> {
  const names = Object.keys(migrations);
  const noted = names.map((name, index): [string, Migration] => {
    const { up, readableFrom } = migrations[name] as SchemaMigration;
    // By default the version before it can read the schema.
    const readable_from = readableFrom ?? names[index - 1] ?? name;
    return [
      name,
      {
        up: async (db: Schema) => {
          await up(db);
          await db.insertInto('schema_readers').values({ migration: name, readable_from }).execute();
        },
      },
    ];
  });
  const provider = { getMigrations: async () => Object.fromEntries(noted) };
  const { error } = await new Migrator({ db: database, provider }).migrateToLatest();
  if (error) throw error;
}

/** Takes no lock: `migratePostgres` holds one, and Kysely's own lock belongs to a session. */
class UnlockedDialect extends PostgresDialect {
  override createAdapter() {
    return new UnlockedAdapter();
  }
}

class UnlockedAdapter extends PostgresAdapter {
  override async acquireMigrationLock(): Promise<void> {}

  override async releaseMigrationLock(): Promise<void> {}
}

const TYPES: Readonly<Record<string, string>> = {
  // Byte order, as in SQLite, for every language of the database.
  text: 'text collate "C"',
  blob: 'bytea',
  // SQLite integers have 64 bits.
  integer: 'bigint',
};

/** Gives columns the types of SQLite, so that both databases share one list of migrations. */
class PostgresTypes extends OperationNodeTransformer implements KyselyPlugin {
  transformQuery({ node }: PluginTransformQueryArgs): RootOperationNode {
    return this.transformNode(node);
  }

  async transformResult({ result }: PluginTransformResultArgs): Promise<QueryResult<UnknownRow>> {
    return result;
  }

  protected override transformNodeImpl<T extends OperationNode>(node: T): T {
    const type = DataTypeNode.is(node) && typeof node.dataType === 'string' ? TYPES[node.dataType] : undefined;
    return type === undefined ? super.transformNodeImpl(node) : (RawNode.createWithSql(type) as unknown as T);
  }
}
