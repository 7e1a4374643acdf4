import type { Migration } from 'kysely';
import * as instances from './0001-instances.ts';

/** Every migration in order; names sort as they run. A migration that has been released is never changed. */
export const MIGRATIONS: Record<string, Migration> = {
  '0001-instances': instances,
};
