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
import * as unpackedCode from './0015-unpacked-code.ts';
import * as agentLifetimes from './0016-agent-lifetimes.ts';
import * as apiKeys from './0017-api-keys.ts';
import * as templates from './0018-templates.ts';
import * as indexesOfAgents from './0019-indexes-of-agents.ts';
import * as agentStates from './0020-agent-states.ts';
import * as calls from './0021-calls.ts';
import * as sleepingAgents from './0022-sleeping-agents.ts';
import * as parentCalls from './0023-parent-calls.ts';
import * as orderOfCalls from './0024-order-of-calls.ts';
import * as callRecordings from './0025-call-recordings.ts';
import * as callSpans from './0026-call-spans.ts';
import * as agentAlarms from './0027-agent-alarms.ts';

export interface SchemaMigration {
  // biome-ignore lint/suspicious/noExplicitAny: each knows its own columns
  up(db: Kysely<any>): Promise<void>;
  /**
   * The oldest migration of a program that can still use the schema after this one. Replicas are replaced one
   * by one. Absent: the migration before this one, the least that every migration must support. Only
   * PostgreSQL uses this; a program refuses an SQLite file of a newer version.
   */
  readonly readableFrom?: string;
}

/**
 * Every migration in order of execution, which is the order of names. A released migration is never changed.
 */
export const MIGRATIONS: Readonly<Record<string, SchemaMigration>> = {
  '0001-instances': instances,
  '0002-registry': registry,
  '0003-function-service': functionService,
  '0004-jobs': jobs,
  // No version before it supported PostgreSQL.
  '0005-one-table-of-instances': { ...oneTableOfInstances, readableFrom: '0005-one-table-of-instances' },
  '0006-cluster': cluster,
  '0007-jobs-of-nodes': jobsOfNodes,
  '0008-async-calls-of-shards': asyncCallsOfShards,
  '0009-installation': installation,
  '0010-code-packages': codePackages,
  '0011-secrets': secrets,
  '0012-restart-policy': restartPolicy,
  '0014-address-key': addressKey,
  '0015-unpacked-code': unpackedCode,
  '0016-agent-lifetimes': agentLifetimes,
  '0017-api-keys': apiKeys,
  '0018-templates': templates,
  '0019-indexes-of-agents': indexesOfAgents,
  '0020-agent-states': agentStates,
  '0021-calls': calls,
  '0022-sleeping-agents': sleepingAgents,
  '0023-parent-calls': parentCalls,
  '0024-order-of-calls': orderOfCalls,
  // It only adds a table.
  '0025-call-recordings': { ...callRecordings, readableFrom: '0023-parent-calls' },
  // Earlier programs write records without spans.
  '0026-call-spans': { ...callSpans, readableFrom: '0023-parent-calls' },
  '0027-agent-alarms': agentAlarms,
};
