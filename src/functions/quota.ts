import type { Group } from './group.ts';
import type { ScalingPolicy } from './policy.ts';

/**
 * Applies the maxima of a version. Groups without a label share `maxInstances`; groups of a label share its
 * own maximum. Records which groups lack instances because of that.
 */
export class Quota {
  readonly #groups: ReadonlyMap<string, Group>;
  readonly #policy: () => ScalingPolicy;
  readonly #short = new Map<Group, number>();

  constructor(groups: ReadonlyMap<string, Group>, policy: () => ScalingPolicy) {
    this.#groups = groups;
    this.#policy = policy;
  }

  /** Returns how many more instances the groups of this label may have together. */
  left(label: string): number {
    let size = 0;
    for (const group of this.#groups.values()) if (group.key.label === label) size += group.size;
    return this.maximum(label) - size;
  }

  /** Returns how many instances the groups of this label may have together. */
  maximum(label: string): number {
    const { maxInstances, labels } = this.#policy();
    return label === '' ? maxInstances : (labels.get(label)?.max ?? 0);
  }

  /** Records that the maximum keeps `missing` instances from the group. */
  recordShortage(group: Group, missing: number): void {
    this.#short.set(group, missing);
  }

  /** Removes the record of a group that lacks no instance or is about to ask again. */
  clearShortage(group: Group): void {
    this.#short.delete(group);
  }

  /**
   * Returns true if groups of this label lack more instances than the maximum leaves after all ending
   * instances are removed.
   */
  isShort(label: string): boolean {
    if (this.#short.size === 0) return false;
    let shortage = 0;
    for (const group of this.#groups.values()) {
      if (group.key.label === label) shortage += (this.#short.get(group) ?? 0) - ending(group);
    }
    return shortage > Math.max(0, this.left(label));
  }

  /**
   * Returns how many instances groups other than `group` lack whose oldest call has waited since `sinceMs` or
   * longer. Instances that are already ending are subtracted.
   */
  shortageSince(sinceMs: number, group: Group): number {
    if (this.#short.size === 0) return 0;
    let shortage = 0;
    for (const other of this.#groups.values()) {
      if (other.key.label !== group.key.label) continue;
      shortage -= ending(other);
      const isOlder = other !== group && (other.oldestWaitingSinceMs ?? Number.POSITIVE_INFINITY) <= sinceMs;
      if (isOlder) shortage += this.#short.get(other) ?? 0;
    }
    return shortage;
  }
}

function ending(group: Group): number {
  return group.count('stopping') + group.count('draining');
}
