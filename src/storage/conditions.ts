import { sql } from 'kysely';
import type { InstanceStatus, OwnerKind } from '../core/instance.ts';

/*
 * Conditions of partial indexes. Both databases use such an index only for a query that
 * contains the condition as it is in the index, without parameters.
 */

/**
 * Selects the records that may have a sandbox: all except ended and sleeping agents. Every start and every
 * reconciler pass uses this condition, so that it does not grow with the number of records.
 */
export const MAY_HAVE_SANDBOX = sql<boolean>`(owner_kind <> 'agent' or status not in ('FAILED', 'SLEEPING'))`;

/** Returns true for the records that `MAY_HAVE_SANDBOX` selects. */
export function mayHaveSandbox(record: {
  readonly owner: { readonly kind: OwnerKind };
  readonly status: InstanceStatus;
}): boolean {
  return record.owner.kind !== 'agent' || !['FAILED', 'SLEEPING'].includes(record.status);
}

/** Selects the records of agents. */
export const IS_AGENT = sql<boolean>`owner_kind = 'agent'`;

/** Selects the agents that their restart policies will start again. */
export const HAS_PLANNED_RESTART = sql<boolean>`restart_at_ms > 0`;

/** Selects the alarms that are still delivered. */
export const IS_NOT_FAILED = sql<boolean>`failed = 0`;

/** Selects the agents that have an end. */
export const HAS_EXPIRY = sql<boolean>`expires_at_ms > 0`;
