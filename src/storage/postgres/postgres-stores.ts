import { Kysely } from 'kysely';
import { failedPrecondition, internal, messageOf, type ServiceError } from '../../core/error.ts';
import type { Tables } from '../database.ts';
import type { Stores } from '../stores-contract.ts';
import { Connections, type PostgresOptions, placeOf } from './postgres-connections.ts';
import { pooledDialect } from './postgres-dialect.ts';
import { isWrongUrl } from './postgres-errors.ts';
import { migratePostgres } from './postgres-schema.ts';
import { PostgresWrites } from './postgres-writes.ts';

/** The oldest major version that PostgreSQL still supports. */
const OLDEST = 14;

/** Opens `Stores` over a PostgreSQL, which other replicas may use at the same time. */
export async function openPostgresStores(options: PostgresOptions): Promise<Stores> {
  const connections = await Connections.open(options);
  let refusal: ServiceError | undefined;
  const checkWrite = () => {
    if (refusal !== undefined) throw refusal;
  };
  try {
    await reach(connections, options);
    await migratePostgres(options.url);
  } catch (error) {
    await connections.close();
    throw error;
  }
  const writes = new PostgresWrites(connections, options.poolSize, checkWrite);
  const database = new Kysely<Tables>({ dialect: pooledDialect(connections, checkWrite) });
  return {
    kind: 'postgres',
    database,
    writes: {
      write: (operation, ...args) => writes.write(operation, ...args),
      problem: () => refusal?.message ?? writes.problem(),
      close: () => writes.close(),
    },
    refuseWrites: problem => {
      refusal = internal(problem);
      writes.failAccepted(refusal);
    },
    async close(onWhole = async () => undefined) {
      await writes.close();
      await database.destroy();
      await connections.close();
      await onWhole();
      return true;
    },
  };
}

/**
 * Returns the version of the server. Fails with `failed_precondition` when the server is unreachable or too
 * old, or when its encoding is not UTF8.
 */
export async function probePostgres(options: PostgresOptions): Promise<string> {
  const connections = await Connections.open(options);
  return await reach(connections, options).finally(() => connections.close());
}

async function reach(connections: Connections, { url, waitMs }: PostgresOptions): Promise<string> {
  const { version, encoding } = await connections.about(performance.now() + waitMs).catch((error: unknown) => {
    const reason = messageOf((error instanceof Error ? error.cause : undefined) ?? error);
    const what = isWrongUrl(error)
      ? `refused the connection: ${reason}`
      : `could not be reached within ${waitMs} ms: ${reason}`;
    throw failedPrecondition(`the database ${placeOf(url)} ${what}; see storage.url`, { cause: error });
  });
  if (Number.parseInt(version, 10) < OLDEST) {
    throw failedPrecondition(`the database ${placeOf(url)} is PostgreSQL ${version}; ${OLDEST} or newer is needed`);
  }
  if (encoding === 'UTF8') return version;
  throw failedPrecondition(
    `the database ${placeOf(url)} keeps text in ${encoding}, which has not every character: make it with encoding 'UTF8'`,
  );
}
