import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../parts/random.ts';
import type { Balancer, Replica, Wish } from './client.ts';

const LOOK_MS = 100;
const LOOK_TIMEOUT_MS = 1_000;

/**
 * Sends each request to a replica that reports itself as ready, as a load balancer with health checks does.
 */
export class ReadyReplicas implements Balancer {
  readonly passesOver = true;
  readonly #replicas: readonly Replica[];
  readonly #random: Random;
  readonly #ready = new Set<string>();
  readonly #looks: readonly Promise<void>[];
  #isClosed = false;

  constructor(replicas: readonly Replica[], random: Random) {
    this.#replicas = replicas;
    this.#random = random;
    this.#looks = replicas.map(replica => this.#look(replica));
  }

  pick({ on, avoid }: Wish): Replica | null {
    const ready = this.#replicas.filter(({ name }) => this.#ready.has(name));
    const wished = ready.filter(({ name }) => name !== avoid && (on === undefined || name === on));
    return this.#random.pickAny(wished.length > 0 ? wished : ready) ?? null;
  }

  isReady(name: string): boolean {
    return this.#ready.has(name);
  }

  /** Removes a replica that is known to be down before the next health check. */
  isGone(name: string): void {
    this.#ready.delete(name);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#looks);
  }

  async #look({ name, frontendUrl }: Replica): Promise<void> {
    while (!this.#isClosed) {
      const signal = AbortSignal.timeout(LOOK_TIMEOUT_MS);
      const isReady = await fetch(`${frontendUrl}/readyz`, { signal }).then(
        async answer => {
          await answer.arrayBuffer();
          return answer.status === 200;
        },
        () => false,
      );
      if (isReady) this.#ready.add(name);
      else this.#ready.delete(name);
      await delay(LOOK_MS);
    }
  }
}
