import type { InstanceSpec } from '../core/instance.ts';

/**
 * The names and idempotency keys of creates that are under way and may have no row yet. Where nobody else writes rows, who has claimed a name that no
 * row has will get it, and may start before the row is there. Whoever comes second waits until the row of the first is written or will never be.
 */
export class NameClaims {
  readonly #claimed = new Map<string, Promise<void>>();

  /** Returns what ends the claim. */
  async claim(
    { tenant, namespace, name }: Pick<InstanceSpec, 'tenant' | 'namespace' | 'name'>,
    idempotencyKey: string | undefined,
  ): Promise<() => void> {
    const keys = [JSON.stringify(['name', tenant, namespace, name])];
    if (idempotencyKey !== undefined) keys.push(JSON.stringify(['key', tenant, idempotencyKey]));
    for (;;) {
      const before = keys.map(key => this.#claimed.get(key)).find(claim => claim !== undefined);
      if (before === undefined) break;
      await before;
    }
    let end!: () => void;
    const claim = new Promise<void>(resolve => {
      end = resolve;
    });
    for (const key of keys) this.#claimed.set(key, claim);
    return () => {
      for (const key of keys) if (this.#claimed.get(key) === claim) this.#claimed.delete(key);
      end();
    };
  }
}
