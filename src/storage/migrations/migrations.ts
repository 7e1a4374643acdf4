import type { Migration } from 'kysely';
import * as instances from './0001-instances.ts';
import * as registry from './0002-registry.ts';
import * as functionService from './0003-function-service.ts';
import * as jobs from './0004-jobs.ts';
import * as oneTableOfInstances from './0005-one-table-of-instances.ts';

/** Every migration in order; names sort as they run. A migration that has been released is never changed. */
export const MIGRATIONS: Record<string, Migration> = {
  '0001-instances': instances,
  '0002-registry': registry,
  '0003-function-service': functionService,
  '0004-jobs': jobs,
  '0005-one-table-of-instances': oneTableOfInstances,
};
