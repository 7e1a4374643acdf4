import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { shardOf } from '../../src/core/lease.ts';

const LOOK_MS = 150;
/** Delay until the witness sees a change, with a margin for a busy machine. */
const SLACK_MS = 1_000;

interface Holding {
  readonly fromMs: number;
  readonly replica: string;
  readonly epoch: string;
}

/**
 * Reads the records of the cluster continuously. Knows which replica owned each shard when, and where each
 * agent and job lives.
 */
export class Witness {
  readonly #pool: pg.Pool;
  readonly #replicas: ReadonlyMap<string, string>;
  readonly #holdings = new Map<string, Holding[]>();
  readonly #homes = new Map<string, string>();
  #looking: Promise<void> = Promise.resolve();
  #isClosed = false;

  /** `replicas` are the names of replicas by the addresses that they announce to each other. */
  constructor(url: string, replicas: ReadonlyMap<string, string>) {
    this.#replicas = replicas;
    this.#pool = new pg.Pool({ connectionString: url, max: 1, connectionTimeoutMillis: 2_000, query_timeout: 5_000 });
    this.#pool.on('error', () => undefined);
  }

  start(): void {
    this.#looking = this.#lookOn();
  }

  /** Returns the replica of an agent or a job, or undefined before the first sight of its record. */
  homeOf(id: string): string | undefined {
    return this.#homes.get(id);
  }

  /** Returns every replica that owned the shard of a function at some time of the period. */
  ownersOf(functionUrn: string, fromMs: number, toMs: number): ReadonlySet<string> {
    return new Set(this.#holdingsIn(functionUrn, fromMs, toMs).map(({ replica }) => replica));
  }

  /** Returns true unless exactly one holding of the function's shard covers the period. */
  hasChanged(functionUrn: string, fromMs: number, toMs: number): boolean {
    return this.#holdingsIn(functionUrn, fromMs, toMs).length !== 1;
  }

  /** Returns a sentence for each instance record that should be removed at the end. */
  async rowsLeft(): Promise<readonly string[]> {
    const { rows } = await this.#pool.query(
      `select id, owner_kind, status, node_id from instances where status != 'FAILED'`,
    );
    return rows.map(row => `an instance is left: ${JSON.stringify(row)}`);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#looking;
    await this.#pool.end();
  }

  #holdingsIn(functionUrn: string, fromMs: number, toMs: number): readonly Holding[] {
    const all = this.#holdings.get(shardOf(functionUrn)) ?? [];
    return all.filter((holding, at) => {
      const next = all[at + 1];
      return holding.fromMs <= toMs + SLACK_MS && (next === undefined || next.fromMs >= fromMs - SLACK_MS);
    });
  }

  async #lookOn(): Promise<void> {
    while (!this.#isClosed) {
      // The database may be down.
      await this.#look().catch(() => undefined);
      await delay(LOOK_MS);
    }
  }

  async #look(): Promise<void> {
    const nodes = await this.#pool.query<{ id: string; advertise: string }>('select id, advertise from nodes');
    const nameOf = new Map(nodes.rows.map(({ id, advertise }) => [id, this.#replicas.get(advertise) ?? advertise]));
    const leases = await this.#pool.query<{ name: string; node_id: string; epoch: string }>(
      'select name, node_id, epoch from leases',
    );
    const nowMs = performance.now();
    for (const { name, node_id, epoch } of leases.rows) {
      const known = this.#holdings.get(name) ?? [];
      if (known.at(-1)?.epoch === epoch) continue;
      known.push({ fromMs: nowMs, replica: nameOf.get(node_id) ?? '', epoch });
      this.#holdings.set(name, known);
    }
    const agents = await this.#pool.query<{ id: string; node_id: string }>(
      `select id, node_id from instances where owner_kind = 'agent'`,
    );
    for (const { id, node_id } of agents.rows) this.#homes.set(id, nameOf.get(node_id) ?? '');
  }
}
