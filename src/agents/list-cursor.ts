import { invalidRequest } from '../core/error.ts';
import type { Instance } from '../core/instance.ts';
import type { AgentFilter } from '../storage/queries/agents.ts';
import type { InstanceQuery } from './contract.ts';

type Ordered = Pick<InstanceQuery, 'order'>;

const STARTED = /^(\d{1,16})\.(.+)$/;

/** Returns the cursor of the page after `last`. */
export function cursorAfter({ order = 'id' }: Ordered, { id, startedAtMs }: Instance): string {
  return order === 'id' ? id : `${startedAtMs}.${id}`;
}

/** Reads a cursor. Fails with `invalid_request` if it belongs to another order. */
export function readCursor({ order = 'id', cursor }: Ordered & Pick<InstanceQuery, 'cursor'>): AgentFilter['after'] {
  if (cursor === null) return null;
  if (order === 'id') return { id: cursor, startedAtMs: 0 };
  const [, startedAtMs, id] = STARTED.exec(cursor) ?? [];
  if (startedAtMs === undefined || id === undefined) {
    throw invalidRequest('invalid query: the cursor must be the next_cursor of a page in the same order');
  }
  return { id, startedAtMs: Number(startedAtMs) };
}
