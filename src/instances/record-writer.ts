import type { AgentName, TakenName } from '../storage/queries/agents.ts';
import type { AgentIdentity, InstancePatch, InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import { type ChangeIdentity, changesOf, identityOf, isLast, type NotifyChange } from './changes.ts';
import type { InstanceRows } from './rows.ts';
import type { FinalEvent, LastingEvent } from './state.ts';

export interface RecordWriterOptions {
  readonly rows: InstanceRows;
  /** Notified of each written change. */
  readonly notify: NotifyChange;
  /** Called when no write is pending, and after the last change of the instance. */
  readonly idle: () => void;
}

/**
 * Chain of the writes of one record: each write begins when the previous one has ended. Publishes each change
 * once it is written.
 */
export class RecordWriter {
  readonly #options: RecordWriterOptions;
  #identity: ChangeIdentity | undefined;
  #pending = 0;
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: RecordWriterOptions) {
    this.#options = options;
  }

  get isPending(): boolean {
    return this.#pending > 0;
  }

  /** Returns true while the record exists and its changes are published. */
  get isPublished(): boolean {
    return this.#identity !== undefined;
  }

  /** Resolves when all writes that are pending now have been tried. Never rejects. */
  async flushed(): Promise<void> {
    await this.#last;
  }

  /**
   * Inserts the record. Returns false if the id, the name or the idempotency key is taken. `write`: inserts
   * the record in a larger transaction.
   */
  insert(
    instance: StoredInstance,
    agent?: AgentIdentity,
    write: () => Promise<boolean> = () => this.#options.rows.insert(instance, agent),
  ): Promise<boolean> {
    return this.#append(async () => {
      const isWritten = await write();
      if (isWritten) this.#publishFirst(identityOf(instance, agent), 'created');
      return isWritten;
    });
  }

  /** See `InstanceRows.move`. */
  move(ref: InstanceRef, event: LastingEvent, patch: Omit<InstancePatch, 'status'> = {}): Promise<boolean> {
    return this.#append(async () => {
      const isWritten = await this.#options.rows.move(ref, event, patch);
      if (isWritten) this.published(event, patch.statusReason || notLoaded(patch.loadError));
      return isWritten;
    });
  }

  /** See `InstanceRows.end`. Subscribers receive `reason`. */
  end(ref: InstanceRef, event: FinalEvent, reason = ''): Promise<boolean> {
    return this.#append(async () => {
      const isWritten = await this.#options.rows.end(ref, event);
      if (isWritten) this.published(event, reason);
      return isWritten;
    });
  }

  /** See `InstanceRows.takeName`. */
  takeName(ref: InstanceRef, patch: Omit<InstancePatch, 'status'>, name: AgentName): Promise<TakenName> {
    return this.#append(async () => {
      const taken = await this.#options.rows.takeName(ref, patch, name);
      if (taken.isWritten) this.published('started', '');
      return taken;
    });
  }

  /** Publishes a record that an earlier server left, unless it is known. */
  found(identity: ChangeIdentity | undefined): void {
    if (this.#identity === undefined) this.#publishFirst(identity, 'found');
    if (identity === undefined) this.#options.idle();
  }

  /** Publishes further changes of a record that is not published, without an announcement. */
  know(identity: ChangeIdentity | undefined): void {
    this.#identity ??= identity;
  }

  /** Publishes a change that was written. */
  published(event: LastingEvent | FinalEvent, reason: string): void {
    const identity = this.#identity;
    if (identity === undefined) return;
    for (const change of changesOf(event, reason)) this.#options.notify({ ...identity, ...change });
    if (isLast(event)) this.forget();
  }

  /**
   * Ends the publication of changes: the record is deleted, another node has taken it over, or it is an ended
   * agent, whose next change calls `know`.
   */
  forget(): void {
    this.#identity = undefined;
    this.#options.idle();
  }

  #publishFirst(identity: ChangeIdentity | undefined, kind: 'created' | 'found'): void {
    this.#identity = identity;
    if (identity !== undefined) this.#options.notify({ ...identity, kind, reason: '' });
  }

  #append<T>(write: () => Promise<T>): Promise<T> {
    const done = this.#pending === 0 ? write() : this.#last.then(write);
    this.#pending += 1;
    const ended = () => {
      this.#pending -= 1;
      if (this.#pending === 0) this.#options.idle();
    };
    this.#last = done.then(ended, ended);
    return done;
  }
}

/** Returns the reason for a running instance without code: the event `ready` alone would hide the failure. */
function notLoaded(loadError: string | undefined): string {
  return loadError ? `code not loaded: ${loadError}` : '';
}
