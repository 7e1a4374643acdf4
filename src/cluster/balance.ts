/** Lease and the node that holds it. */
export interface Holding {
  readonly name: string;
  /** Living node that holds the lease; null: none does. */
  readonly nodeId: string | null;
}

/**
 * Returns which of `holdings` must move to which of `workers`: as few as possible, until shares differ by at
 * most one. All replicas compute the same moves from the same records, without talking to each other. The
 * owner releases a lease that moves, and its new owner takes a free one. Without workers nothing moves.
 */
export function planMoves(holdings: readonly Holding[], workers: readonly string[]): Map<string, string> {
  const moves = new Map<string, string>();
  if (workers.length === 0) return moves;
  const owned = new Map<string, string[]>(workers.map(id => [id, []]));
  const homeless: string[] = [];
  for (const { name, nodeId } of [...holdings].sort(byName)) {
    ((nodeId === null ? undefined : owned.get(nodeId)) ?? homeless).push(name);
  }
  const share = Math.floor(holdings.length / workers.length);
  // The workers with the most leases get the larger shares.
  let larger = holdings.length % workers.length;
  const byCount = [...owned].sort(([a, one], [b, other]) => other.length - one.length || (a < b ? -1 : 1));
  const room: [id: string, count: number][] = [];
  for (const [id, names] of byCount) {
    const target = share + (larger-- > 0 ? 1 : 0);
    homeless.push(...names.slice(target));
    if (names.length < target) room.push([id, target - names.length]);
  }
  let at = 0;
  for (const [id, count] of room) {
    for (const name of homeless.slice(at, at + count)) moves.set(name, id);
    at += count;
  }
  return moves;
}

function byName(one: Holding, other: Holding): number {
  return one.name < other.name ? -1 : 1;
}
