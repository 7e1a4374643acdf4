import type { InstanceSpec } from '../core/instance.ts';

export type AgentName = Pick<InstanceSpec, 'tenant' | 'namespace' | 'name'>;

interface Held {
  readonly key: string;
  /** Who had the name when this one was to have it. */
  readonly before: string | undefined;
}

/**
 * The names that agents have, or may have, where nobody else writes rows: to find out from storage that a name is free is a twentieth of a create. It
 * may hold a name for too long (storage is asked then), and never lets go of one that a row has.
 */
export class HeldNames {
  /** By name: the agent that was to have it last. */
  readonly #holders = new Map<string, string>();
  /** By agent. */
  readonly #held = new Map<string, Held>();
  /** Nobody knows whether they have rows. */
  readonly #doubtful = new Set<string>();
  #isComplete = false;

  /** False: perhaps it is free all the same. */
  isFree(name: AgentName): boolean {
    return this.#isComplete && !this.#holders.has(keyOf(name));
  }

  /** Its row is about to be written. */
  hold(id: string, name: AgentName): void {
    const key = keyOf(name);
    this.#held.set(id, { key, before: this.#holders.get(key) });
    this.#holders.set(key, id);
  }

  /** It has no row any more. Its name may be another one's by now. */
  release(id: string): void {
    const held = this.#take(id);
    if (held !== undefined && this.#holders.get(held.key) === id) this.#holders.delete(held.key);
  }

  /** Its row was not written: another one has its name, or its idempotency key. */
  refuse(id: string): void {
    const held = this.#take(id);
    if (held === undefined || this.#holders.get(held.key) !== id) return;
    if (held.before !== undefined) this.#holders.set(held.key, held.before);
    else if (this.#isComplete) this.#holders.delete(held.key);
  }

  /** The write of its row has failed, and may have been done. */
  doubt(id: string): void {
    if (this.#held.has(id)) this.#doubtful.add(id);
  }

  /**
   * Finds out which of those whose writes have failed have no row. One that is written later all the same is looked for as a row, and its name is decided
   * by the next insert. Rejects when `hasRow` does.
   */
  async settle(hasRow: (id: string) => Promise<boolean>): Promise<void> {
    for (const id of this.#doubtful) {
      if (await hasRow(id)) this.#doubtful.delete(id);
      else this.release(id);
    }
  }

  /** With those of an earlier server every name is known. */
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
