import type { KyselyPlugin } from 'kysely';
import { unavailable } from '../../src/core/error.ts';
import type { SandboxDriver } from '../../src/sandbox/driver.ts';
import type { Database } from '../../src/storage/database.ts';

/**
 * Outcome of a step: it passes, the server is killed before it, or its write fails before or after it is
 * done.
 */
export type Fate = 'passes' | 'kills' | 'fails' | 'fails late';

const CHANGES = new Set(['InsertQueryNode', 'UpdateQueryNode', 'DeleteQueryNode']);
/** Methods of a driver that change something. */
const DRIVER_STEPS = new Set<PropertyKey>(['start', 'stop', 'remove']);

/**
 * Records each step of a server in storage and driver, so that a test can interrupt any of them. After
 * `kill`, the writes of the server fail and its driver does not answer.
 */
export class LastSteps {
  /** Steps that were done, in order. */
  readonly taken: string[] = [];
  /** Returns the fate of the next step; `index` counts from 0. */
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

  /** Kills the server and fails the calls that still wait for its driver. */
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
