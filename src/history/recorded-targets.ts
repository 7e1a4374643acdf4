import type { RecordedTarget } from '../core/call-recording.ts';

/** Agents and functions whose calls are all kept until a time, by the target of a call. */
export class RecordedTargets {
  readonly #endsAtMs = new Map<string, number>();

  constructor(recordings: Iterable<RecordedTarget & { readonly tenant: string; readonly endsAtMs: number }>) {
    for (const { tenant, kind, target, endsAtMs } of recordings) {
      this.#endsAtMs.set(kind === 'agent' ? target : `${tenant}:function:${target}`, endsAtMs);
    }
  }

  get size(): number {
    return this.#endsAtMs.size;
  }

  /** `target`: the id of an agent, or the URN of a version, as in `FinishedCall`. */
  has(target: string, nowMs: number): boolean {
    const endsAtMs = this.#endsAtMs.get(target.startsWith(URN) ? functionOf(target) : target);
    return endsAtMs !== undefined && nowMs < endsAtMs;
  }
}

const URN = 'sn:cn:';

/** Returns `<tenant>:function:<name>` of the URN of a version. */
function functionOf(urn: string): string {
  return urn.slice(urn.indexOf(':', URN.length) + 1, urn.lastIndexOf(':'));
}
