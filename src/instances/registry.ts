import type { OwnerKind } from '../core/instance.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { LiveInstance } from './live-instance.ts';
import { InstanceRunner, RECORDED_MS, type RunnerParts } from './runner.ts';

/** Runners of all instances that this process works on, by id. */
export class RunnerRegistry {
  readonly #parts: RunnerParts;
  readonly #runners = new Map<string, InstanceRunner>();

  constructor(parts: RunnerParts) {
    this.#parts = parts;
  }

  /** Returns the runner of an instance, a new one if there was none. */
  of(id: string): InstanceRunner {
    const known = this.#runners.get(id);
    if (known !== undefined) return known;
    const runner = new InstanceRunner(id, this.#parts, idle => this.#drop(idle));
    this.#runners.set(id, runner);
    return runner;
  }

  get(id: string): InstanceRunner | undefined {
    return this.#runners.get(id);
  }

  /** Returns the live instance with this id and of this kind. */
  live(kind: OwnerKind, id: string): LiveInstance | undefined {
    const live = this.#runners.get(id)?.live;
    return live?.owner.kind === kind ? live : undefined;
  }

  /** Returns all live instances, or those of one kind. */
  allLive(kind?: OwnerKind): readonly LiveInstance[] {
    const live: LiveInstance[] = [];
    for (const runner of this.#runners.values())
      if (runner.live !== undefined && (kind === undefined || runner.live.owner.kind === kind)) live.push(runner.live);
    return live;
  }

  all(): readonly InstanceRunner[] {
    return [...this.#runners.values()];
  }

  /**
   * Waits for pending writes of one instance, or of all. Waits at most 1 s, so that a stalled disk does not
   * block reads.
   */
  async flushed(id?: string): Promise<void> {
    const runners = id === undefined ? this.#runners.values() : [this.#runners.get(id)];
    const pending: Promise<void>[] = [];
    for (const runner of runners) if (runner?.writer.isPending) pending.push(runner.writer.flushed());
    if (pending.length > 0) await endsWithin(Promise.all(pending), RECORDED_MS);
  }

  /**
   * Cancels the searches for recovered instances of this kind and keeps their sandboxes. Returns the number
   * of searches.
   */
  async abandonAdoptions(kind: OwnerKind): Promise<number> {
    const abandoned = [...this.#runners.values()].map(runner => runner.abandonAdoption(kind));
    return (await Promise.all(abandoned)).filter(Boolean).length;
  }

  #drop(runner: InstanceRunner): void {
    if (runner.isIdle && this.#runners.get(runner.id) === runner) this.#runners.delete(runner.id);
  }
}
