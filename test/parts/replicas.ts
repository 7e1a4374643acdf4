import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import type { ClusterLog, LeaseName } from '../../src/cluster/contract.ts';
import { Replica, type ReplicaTimes } from '../../src/cluster/replicas.ts';
import type { Database, Tables, WriteTransaction } from '../../src/storage/database.ts';
import { migratePostgres } from '../../src/storage/postgres-schema.ts';
import { startPostgres, type TestPostgres } from './postgres.ts';

/** As in a service, but everything several times as fast: long enough for a machine that is busy. */
export const QUICK: Partial<ReplicaTimes> = {
  ttlMs: 3000,
  heartbeatMs: 400,
  marginMs: 300,
  retryMs: 50,
  releaseWaitMs: 5000,
  pollMs: 300,
};

export type LeaseEvent = readonly ['acquired' | 'releasing' | 'lost', LeaseName];

export interface TestReplica {
  readonly replica: Replica;
  readonly events: LeaseEvent[];
  /** What it logged as a warning. */
  readonly warnings: string[];
  /** Awaited in `onReleasing`. */
  onReleasing: (name: LeaseName) => Promise<void>;
}

/** Several replicas in this process over one new database. */
export class Replicas implements AsyncDisposable {
  readonly url: string;
  readonly server: TestPostgres;
  readonly database: Database;
  readonly #processes = new Set<ReplicaProcess>();
  readonly #open = new Set<Replica>();
  readonly #ownsServer: boolean;

  private constructor(server: TestPostgres, url: string, ownsServer: boolean) {
    this.server = server;
    this.url = url;
    this.#ownsServer = ownsServer;
    this.database = connectTo(url);
  }

  /** On `server`, or on one of their own. */
  static async open(server?: TestPostgres): Promise<Replicas> {
    const running = server ?? (await startPostgres());
    const replicas = new Replicas(running, await running.database(), server === undefined);
    await migratePostgres(replicas.url);
    await sql`create table notes (text text not null)`.execute(replicas.database);
    return replicas;
  }

  /** Not joined yet. */
  async make(
    id: string,
    options: { times?: Partial<ReplicaTimes>; roles?: string[]; hasWakeUps?: boolean } = {},
  ): Promise<TestReplica> {
    const warnings: string[] = [];
    const log: ClusterLog = { info: () => undefined, warn: (_details, message) => void warnings.push(message) };
    const self = { id, advertise: `${id}:1`, roles: options.roles ?? ['frontend', 'meta', 'worker'], version: '1' };
    const replica = await Replica.open({
      url: this.url,
      self,
      log,
      times: { ...QUICK, ...options.times },
      hasWakeUps: options.hasWakeUps ?? true,
    });
    this.#open.add(replica);
    return {
      replica,
      events: [],
      warnings,
      onReleasing: async () => undefined,
    };
  }

  /** A process of its own, joined and taking leases: it can be stopped and killed. */
  async spawn(id: string, options: SpawnOptions = {}): Promise<ReplicaProcess> {
    const started = await ReplicaProcess.start(this.url, id, options);
    this.#processes.add(started);
    return started;
  }

  /** Joined, and takes leases. */
  async start(id: string, options: Parameters<Replicas['make']>[1] = {}): Promise<TestReplica> {
    const made = await this.make(id, options);
    await made.replica.join();
    made.replica.own({
      onAcquired: name => void made.events.push(['acquired', name]),
      onReleasing: async name => {
        made.events.push(['releasing', name]);
        await made.onReleasing(name);
      },
      onLost: name => void made.events.push(['lost', name]),
    });
    return made;
  }

  /** In a transaction of its own, as write operations are. */
  write<R>(work: (transaction: WriteTransaction) => Promise<R>): Promise<R> {
    return this.database.transaction().execute(work);
  }

  async notes(): Promise<string[]> {
    const { rows } = await sql<{ text: string }>`select text from notes`.execute(this.database);
    return rows.map(({ text }) => text);
  }

  async closeReplicas(): Promise<void> {
    const open = [...this.#open];
    this.#open.clear();
    await Promise.all(open.map(replica => replica.leave()));
  }

  async close(): Promise<void> {
    await Promise.all([...this.#processes].map(each => each.kill()));
    await this.closeReplicas();
    await this.database.destroy();
    if (this.#ownsServer) await this.server.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

export interface SpawnOptions {
  readonly times?: Partial<ReplicaTimes>;
  readonly hasWakeUps?: boolean;
}

/** What the program of a replica (`replica-program.ts`) can be asked for. */
export type ReplicaOrder =
  /** Keeps the fence of a lease for later. */
  | { readonly do: 'arm'; readonly lease: LeaseName }
  /** Writes a note under the fence that it kept, or under a new one of the lease. */
  | { readonly do: 'write'; readonly lease: LeaseName | 'armed'; readonly text: string }
  /** Publishes so many changes, `atOnce` at a time, `everyMs` apart; the keys begin with `name`. */
  | {
      readonly do: 'publish';
      readonly name: string;
      readonly count: number;
      readonly atOnce: number;
      readonly everyMs: number;
    }
  | { readonly do: 'held' };

export class ReplicaProcess {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: { result?: unknown; error?: string }) => void>();
  #last = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on('message', (answer: { id: number; result?: unknown; error?: string }) => {
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    });
    child.once('exit', () => {
      for (const fail of this.#waiting.values()) fail({ error: 'the process has ended' });
    });
  }

  static async start(url: string, id: string, options: SpawnOptions): Promise<ReplicaProcess> {
    const child = fork(PROGRAM, [url, id, JSON.stringify({ ...options, times: { ...QUICK, ...options.times } })], {
      execArgv: ['--import', 'tsx'],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const started = new ReplicaProcess(child);
    await started.ask({ do: 'held' });
    return started;
  }

  /** What it answers. Fails with the text of its error. */
  ask(order: ReplicaOrder): Promise<unknown> {
    this.#last += 1;
    const id = this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, ({ result, error }) => (error === undefined ? resolve(result) : reject(new Error(error))));
      this.#child.send({ id, order });
    });
  }

  stop(): void {
    this.#child.kill('SIGSTOP');
  }

  resume(): void {
    this.#child.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }
}

const PROGRAM = fileURLToPath(new URL('replica-program.ts', import.meta.url));

export function connectTo(url: string): Database {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  pool.on('error', () => undefined);
  pool.on('connect', client => void client.on('error', () => undefined));
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
}

export async function note(transaction: WriteTransaction, text: string): Promise<void> {
  await sql`insert into notes (text) values (${text})`.execute(transaction);
}
