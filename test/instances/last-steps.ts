import type { KyselyPlugin } from 'kysely';
import { unavailable } from '../../src/core/error.ts';
import type { SandboxDriver } from '../../src/sandbox/driver.ts';
import type { Database } from '../../src/storage/database.ts';

/** What happens at a step: nothing, the server is killed before it, or the write fails (before it is done, or after). */
export type Fate = 'passes' | 'kills' | 'fails' | 'fails late';

const CHANGES = new Set(['InsertQueryNode', 'UpdateQueryNode', 'DeleteQueryNode']);
/** Steps of a driver that change something. */
const DRIVER_STEPS = new Set<PropertyKey>(['start', 'stop', 'remove']);

/**
 * What one server does to storage and to sandboxes, step by step, so that a test can end it at each of them. A server that was killed does
 * nothing any more: its writes fail, and its driver does not answer.
 */
export class LastSteps {
  /** What was done, in order. */
  readonly taken: string[] = [];
  /** Decides over the next step, by its number from 0. */
  fateOf: (index: number, name: string) => Fate = () => 'passes';
  /** Resolves when the server is killed. */
  readonly died: Promise<void>;
  #isDead = false;
  #die!: () => void;
  #bury!: (error: Error) => void;
  readonly #buried: Promise<never>;

  constructor() {
    this.died = new Promise(resolve => {
      this.#die = resolve;
    });
    this.#buried = new Promise((_, reject) => {
      this.#bury = reject;
    });
    this.#buried.catch(() => undefined);
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  kill(): void {
    this.#isDead = true;
    this.#die();
  }

  /** What still waits for a server that is dead fails. */
  bury(): void {
    this.kill();
    this.#bury(new Error('the server was killed'));
  }

  database(real: Database): Database {
    const late = new WeakSet<object>();
    const plugin: KyselyPlugin = {
      transformQuery: ({ node, queryId }) => {
        if (this.#isDead) throw new Error('the server was killed');
        if (!CHANGES.has(node.kind)) return node;
        const fate = this.#next(`write: ${node.kind}`);
        if (fate === 'kills') throw new Error('the server was killed');
        if (fate === 'fails') throw unavailable('the disk is full, on demand');
        if (fate === 'fails late') late.add(queryId);
        return node;
      },
      transformResult: async ({ result, queryId }) => {
        if (this.#isDead) throw new Error('the server was killed');
        if (late.has(queryId)) throw unavailable('the disk did not confirm, on demand');
        return result;
      },
    };
    return real.withPlugin(plugin);
  }

  driver(real: SandboxDriver): SandboxDriver {
    return new Proxy(real, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== 'function') return member;
        if (name === 'logs' || name === 'access') return member.bind(target);
        return (...parameters: unknown[]) => this.#call(name, () => member.apply(target, parameters));
      },
    });
  }

  async #call(name: PropertyKey, call: () => Promise<unknown>): Promise<unknown> {
    if (!this.#isDead && DRIVER_STEPS.has(name)) this.#next(`driver: ${String(name)}`);
    if (this.#isDead) return await this.#buried;
    try {
      const result = await call();
      return this.#isDead ? await this.#buried : result;
    } catch (error) {
      if (this.#isDead) return await this.#buried;
      throw error;
    }
  }

  #next(name: string): Fate {
    const fate = this.fateOf(this.taken.length, name);
    this.taken.push(name);
    if (fate === 'kills') this.kill();
    return fate;
  }
}
