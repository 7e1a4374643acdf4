import type { Job } from '../core/job.ts';

/** Change of a job's state. `DELETED`: its record was removed. */
export interface JobChange {
  readonly tenant: string;
  readonly id: string;
  readonly status: Job['status'] | 'DELETED';
  readonly message: string;
  readonly attempt: number;
}

/** Notifies the watchers of a job of its changes. */
export class JobChanges {
  readonly #watchers = new Map<number, Set<JobWatch>>();
  readonly #notify: ((change: JobChange) => void) | undefined;

  /** Calls `tell` for every change of a state. `tell` must not throw. */
  constructor(tell?: (change: JobChange) => void) {
    this.#notify = tell;
  }

  /** Notifies the watchers after a new state was stored. `change` has the fields that differ from `job`. */
  changed(job: Job, change: Partial<Pick<JobChange, 'status' | 'message' | 'attempt'>>): void {
    this.emit(job.sequence);
    const { tenant, id, status, message, attempt } = job;
    this.#notify?.({ tenant, id, status, message, attempt, ...change });
  }

  watch(sequence: number, signal: AbortSignal): JobWatch {
    const watchers = this.#watchers.get(sequence) ?? new Set();
    this.#watchers.set(sequence, watchers);
    const watch: JobWatch = new JobWatch(signal, () => {
      watchers.delete(watch);
      if (watchers.size === 0) this.#watchers.delete(sequence);
    });
    watchers.add(watch);
    return watch;
  }

  emit(sequence: number): void {
    for (const watch of this.#watchers.get(sequence) ?? []) watch.wake();
  }
}

/** Watch of a job. Changes before a call of `next` count too. */
class JobWatch {
  readonly #signal: AbortSignal;
  readonly #forget: () => void;
  readonly #onAbort = () => this.wake();
  #hasChanged = false;
  #waiting: (() => void) | undefined;

  constructor(signal: AbortSignal, forget: () => void) {
    this.#signal = signal;
    this.#forget = forget;
    signal.addEventListener('abort', this.#onAbort);
  }

  wake(): void {
    this.#hasChanged = true;
    this.#waiting?.();
  }

  /** Resolves at the next change, or when the signal aborts. */
  async next(): Promise<void> {
    if (!this.#hasChanged && !this.#signal.aborted) {
      await new Promise<void>(resolve => {
        this.#waiting = resolve;
      });
    }
    this.#hasChanged = false;
  }

  close(): void {
    this.#signal.removeEventListener('abort', this.#onAbort);
    this.#forget();
  }
}
