import type { Kysely } from 'kysely';
import * as instances from './0001-instances.ts';
import * as registry from './0002-registry.ts';
import * as functionService from './0003-function-service.ts';
import * as jobs from './0004-jobs.ts';
import * as oneTableOfInstances from './0005-one-table-of-instances.ts';
import * as cluster from './0006-cluster.ts';
import * as jobsOfNodes from './0007-jobs-of-nodes.ts';
import * as asyncCallsOfShards from './0008-async-calls-of-shards.ts';
import * as installation from './0009-installation.ts';
import * as codePackages from './0010-code-packages.ts';
import * as secrets from './0011-secrets.ts';
import * as restartPolicy from './0012-restart-policy.ts';
import * as addressKey from './0014-address-key.ts';

export interface SchemaMigration {
  // biome-ignore lint/suspicious/noExplicitAny: each knows its own columns
  up(db: Kysely<any>): Promise<void>;
  /**
   * The oldest migration whose version can go on with the schema after this one: replicas are replaced one by one. Absent: the one before it,
   * which is the least that a migration has to keep. Only PostgreSQL asks; a file of SQLite has one program, and refuses an older one.
   */
  readonly readableFrom?: string;
}

/** Every migration in order; names sort as they run. A migration that has been released is never changed. */
export const MIGRATIONS: Readonly<Record<string, SchemaMigration>> = {
  '0001-instances': instances,
  '0002-registry': registry,
  '0003-function-service': functionService,
  '0004-jobs': jobs,
  // No version before it knew PostgreSQL.
  '0005-one-table-of-instances': { ...oneTableOfInstances, readableFrom: '0005-one-table-of-instances' },
  '0006-cluster': cluster,
  '0007-jobs-of-nodes': jobsOfNodes,
  '0008-async-calls-of-shards': asyncCallsOfShards,
  '0009-installation': installation,
  '0010-code-packages': codePackages,
  '0011-secrets': secrets,
  '0012-restart-policy': restartPolicy,
  '0014-address-key': addressKey,
};
