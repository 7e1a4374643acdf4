import type { InstanceSpec } from '../core/instance.ts';

/**
 * Names and idempotency keys of running creates, which may have no record yet. If only this process writes
 * records, a claim on a name without a record is final. The agent may then start before its record exists. A
 * second create waits until the first record is written or can no longer be written.
 */
export class NameClaims {
  readonly #claimed = new Map<string, Promise<void>>();

  /** Waits for earlier claims, then claims the name and the key. Returns the function that ends the claim. */
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
