import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import type { LeaseName } from '../../src/cluster/contract.ts';
import { ClusterReplica, type ReplicaTimes } from '../../src/cluster/replicas.ts';
import type { Log } from '../../src/lib/log.ts';
import type { Database, Tables, WriteTransaction } from '../../src/storage/database.ts';
import { migratePostgres } from '../../src/storage/postgres/postgres-schema.ts';
import { startPostgres, type TestPostgres } from './postgres.ts';

/** Times that are several times shorter than in a service, but long enough for a busy machine. */
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
  readonly replica: ClusterReplica;
  readonly events: LeaseEvent[];
  /** Warnings that the replica logged. */
  readonly warnings: string[];
  /** Function that the replica awaits in its own `onReleasing`. */
  onReleasing: (name: LeaseName) => Promise<void>;
}

/** Several replicas in this process over one new database. */
export class Replicas implements AsyncDisposable {
  readonly url: string;
  readonly server: TestPostgres;
  readonly database: Database;
  readonly #processes = new Set<ReplicaProcess>();
  readonly #open = new Set<ClusterReplica>();
  readonly #ownsServer: boolean;

  private constructor(server: TestPostgres, url: string, ownsServer: boolean) {
    this.server = server;
    this.url = url;
    this.#ownsServer = ownsServer;
    this.database = connectTo(url);
  }

  /** Opens a database for replicas on `server`, or on a new server. */
  static async open(server?: TestPostgres): Promise<Replicas> {
    const running = server ?? (await startPostgres());
    const replicas = new Replicas(running, await running.database(), server === undefined);
    await migratePostgres(replicas.url);
    await sql`create table notes (text text not null)`.execute(replicas.database);
    return replicas;
  }

  /** Makes a replica that has not joined yet. */
  async make(
    id: string,
    options: { times?: Partial<ReplicaTimes>; roles?: string[]; hasWakeUps?: boolean } = {},
  ): Promise<TestReplica> {
    const warnings: string[] = [];
    const log: Log = {
      info: () => undefined,
      warn: (_details, message) => void warnings.push(message),
      error: (_details, message) => void warnings.push(message),
    };
    const self = { id, advertise: `${id}:1`, roles: options.roles ?? ['frontend', 'meta', 'worker'], version: '1' };
    const replica = await ClusterReplica.open({
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

  /**
   * Starts a replica as a separate process that joins and takes leases. A test can pause and kill the
   * process.
   */
  async spawn(id: string, options: SpawnOptions = {}): Promise<ReplicaProcess> {
    const started = await ReplicaProcess.start(this.url, id, options);
    this.#processes.add(started);
    return started;
  }

  /** Starts a replica in this process that joins and takes leases. */
  async start(id: string, options: Parameters<Replicas['make']>[1] = {}): Promise<TestReplica> {
    const made = await this.make(id, options);
    await made.replica.join();
    made.replica.setLeaseOwner({
      onAcquired: name => void made.events.push(['acquired', name]),
      onReleasing: async name => {
        made.events.push(['releasing', name]);
        await made.onReleasing(name);
      },
      onLost: name => void made.events.push(['lost', name]),
    });
    return made;
  }

  /** Runs `work` in its own transaction, like write operations of the service. */
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

/** Orders for the program of a replica (`replica-program.ts`). */
export type ReplicaOrder =
  /** Keeps the fence of a lease for later. */
  | { readonly do: 'arm'; readonly lease: LeaseName }
  /** Writes a note under the kept fence, or under a new fence of the lease. */
  | { readonly do: 'write'; readonly lease: LeaseName | 'armed'; readonly text: string }
  /** Publishes changes, `atOnce` at a time, `everyMs` apart; the keys begin with `name`. */
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

  /** Sends an order and returns the answer. Fails with the text of the program's error. */
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
