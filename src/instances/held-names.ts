import type { InstanceSpec } from '../core/instance.ts';

export type AgentName = Pick<InstanceSpec, 'tenant' | 'namespace' | 'name'>;

interface Held {
  readonly key: string;
  /** Agent that had the name before this one claimed it. */
  readonly before: string | undefined;
}

/**
 * Names that agents have or may have, for a process that alone writes records. Asking storage for a free name
 * takes a twentieth of a create. May report a free name as taken (storage decides then), never the reverse.
 */
export class HeldNames {
  /** Latest agent to claim a name, by name. */
  readonly #holders = new Map<string, string>();
  /** Claimed name, by agent. */
  readonly #held = new Map<string, Held>();
  /** Agents whose insert failed, so that a record may or may not exist. */
  readonly #doubtful = new Set<string>();
  #isComplete = false;

  /** Returns true if the name is certainly free. On false, storage decides. */
  isFree(name: AgentName): boolean {
    return this.#isComplete && !this.#holders.has(keyOf(name));
  }

  /** Claims a name for an agent whose record is about to be written. */
  hold(id: string, name: AgentName): void {
    const key = keyOf(name);
    this.#held.set(id, { key, before: this.#holders.get(key) });
    this.#holders.set(key, id);
  }

  /** Releases the name of an agent without a record, unless another agent has claimed it since. */
  release(id: string): void {
    const held = this.#take(id);
    if (held !== undefined && this.#holders.get(held.key) === id) this.#holders.delete(held.key);
  }

  /** Undoes the claim of an agent whose record was refused: its name or its idempotency key was taken. */
  refuse(id: string): void {
    const held = this.#take(id);
    if (held === undefined || this.#holders.get(held.key) !== id) return;
    if (held.before !== undefined) this.#holders.set(held.key, held.before);
    else if (this.#isComplete) this.#holders.delete(held.key);
  }

  /** Marks an agent whose insert failed but may have been executed. */
  doubt(id: string): void {
    if (this.#held.has(id)) this.#doubtful.add(id);
  }

  /**
   * Checks which agents with failed inserts have no record, and releases their names. If such a record
   * appears later, the reconciler finds it and the next insert of the name is refused. Rejects when `hasRow`
   * does.
   */
  async settle(hasRow: (id: string) => Promise<boolean>): Promise<void> {
    for (const id of this.#doubtful) {
      if (await hasRow(id)) this.#doubtful.delete(id);
      else this.release(id);
    }
  }

  /** Adds the names of recovered agents. From then on every name is known. */
  complete(agents: readonly (AgentName & { readonly id: string })[]): void {
    for (const { id, ...name } of agents) if (!this.#holders.has(keyOf(name))) this.hold(id, name);
    this.#isComplete = true;
  }

  #take(id: string): Held | undefined {
    const held = this.#held.get(id);
    this.#held.delete(id);
    this.#doubtful.delete(id);
    return held;
  }
}

function keyOf({ tenant, namespace, name }: AgentName): string {
  return JSON.stringify([tenant, namespace, name]);
}
