import type { Group } from './group.ts';
import type { ServicePolicy } from './policy.ts';

/**
 * The maxima of one service and who shares them: groups without a label share `maxInstances`, those of a label its own maximum. Knows
 * which groups lack instances because of that.
 */
export class Quota {
  readonly #groups: ReadonlyMap<string, Group>;
  readonly #policy: () => ServicePolicy;
  readonly #short = new Map<Group, number>();

  constructor(groups: ReadonlyMap<string, Group>, policy: () => ServicePolicy) {
    this.#groups = groups;
    this.#policy = policy;
  }

  /** How many more instances groups of this label may have together. */
  left(label: string): number {
    let size = 0;
    for (const group of this.#groups.values()) if (group.key.label === label) size += group.size;
    return this.maximum(label) - size;
  }

  /** How many instances groups of this label may have together. */
  maximum(label: string): number {
    const { maxInstances, labels } = this.#policy();
    return label === '' ? maxInstances : (labels.get(label)?.max ?? 0);
  }

  /** The maximum keeps `missing` instances from the group. */
  refused(group: Group, missing: number): void {
    this.#short.set(group, missing);
  }

  /** It lacks nothing, or will ask again. */
  forget(group: Group): void {
    this.#short.delete(group);
  }

  /** Whether groups of this label lack more instances than there is capacity for once those are gone that are ending. */
  isLacking(label: string): boolean {
    if (this.#short.size === 0) return false;
    let lacking = 0;
    for (const group of this.#groups.values()) {
      if (group.key.label === label) lacking += (this.#short.get(group) ?? 0) - ending(group);
    }
    return lacking > Math.max(0, this.left(label));
  }

  /** Instances that others than `group` lack whose calls have waited since `sinceMs` at least, beyond the capacity that is being given back. */
  lackedSince(sinceMs: number, group: Group): number {
    if (this.#short.size === 0) return 0;
    let lacked = 0;
    for (const other of this.#groups.values()) {
      if (other.key.label !== group.key.label) continue;
      lacked -= ending(other);
      const isOlder = other !== group && (other.oldestWaitingSinceMs ?? Number.POSITIVE_INFINITY) <= sinceMs;
      if (isOlder) lacked += this.#short.get(other) ?? 0;
    }
    return lacked;
  }
}

function ending(group: Group): number {
  return group.count('stopping') + group.count('draining');
}
