import type { InstanceSpec } from '../core/instance.ts';

export type AgentName = Pick<InstanceSpec, 'tenant' | 'namespace' | 'name'>;

/**
 * The names that agents have, or may have, where nobody else writes rows: to find out from storage that a name is free is a twentieth of a create. It
 * may hold a name for too long (storage is asked then), and never lets go of one that a row has.
 */
export class HeldNames {
  /** The last agent that was to have a name. */
  readonly #holders = new Map<string, string>();
  readonly #names = new Map<string, string>();
  #isComplete = false;

  /** False: perhaps it is free all the same. */
  isFree(name: AgentName): boolean {
    return this.#isComplete && !this.#holders.has(keyOf(name));
  }

  /** Its row is about to be written. */
  hold(id: string, name: AgentName): void {
    const key = keyOf(name);
    this.#holders.set(key, id);
    this.#names.set(id, key);
  }

  /** It has no row any more. Its name may be another one's by now. */
  release(id: string): void {
    const key = this.#names.get(id);
    if (key === undefined) return;
    this.#names.delete(id);
    if (this.#holders.get(key) === id) this.#holders.delete(key);
  }

  /** Another one has its name, and keeps it. */
  refuse(id: string): void {
    this.#names.delete(id);
  }

  /** With those of an earlier server every name is known. */
  complete(agents: readonly (AgentName & { readonly id: string })[]): void {
    for (const { id, ...name } of agents) if (!this.#holders.has(keyOf(name))) this.hold(id, name);
    this.#isComplete = true;
  }
}

function keyOf({ tenant, namespace, name }: AgentName): string {
  return JSON.stringify([tenant, namespace, name]);
}
