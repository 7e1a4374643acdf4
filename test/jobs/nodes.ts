import type { JobCluster } from '../../src/jobs/cluster.ts';
import { type Database, openDatabase } from '../../src/storage/database.ts';
import { type DurableWrites, openDurableWrites } from '../../src/storage/writes/durable.ts';
import { type HarnessNode, JobsHarness } from './harness.ts';

/** A node's view of the cluster, which the test controls. */
class TestCluster implements JobCluster {
  epochNow = 1;
  readonly #nodes: JobNodes;
  readonly #id: string;
  readonly #listeners: (() => void)[] = [];

  constructor(nodes: JobNodes, id: string) {
    this.#nodes = nodes;
    this.#id = id;
  }

  epoch(): number {
    return this.epochNow;
  }

  isHeld(): boolean {
    return this.#nodes.holder === this.#id;
  }

  fence(): null {
    return null;
  }

  livingNodes(): ReadonlySet<string> {
    return this.#nodes.living;
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Notifies the listeners, as the feed or an acquired lease does. */
  wake(): void {
    for (const listener of this.#listeners) listener();
  }
}

export interface NodesOptions extends Partial<HarnessNode> {
  /** True for a single node without a cluster. */
  readonly isAlone?: boolean;
}

export interface TestNode {
  readonly id: string;
  readonly jobs: JobsHarness;
  readonly cluster: TestCluster;
}

/** Nodes with their own machines and disks over one database in one process. */
export class JobNodes implements AsyncDisposable {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Id of the node that submits the jobs of schedules. */
  holder = 'a';
  readonly living = new Set<string>();
  readonly #options: NodesOptions;
  readonly #nodes: TestNode[] = [];
  readonly #close: () => Promise<void>;

  private constructor(
    stores: { database: Database; writes: DurableWrites; close(): Promise<void> },
    options: NodesOptions,
  ) {
    this.database = stores.database;
    this.writes = stores.writes;
    this.#close = stores.close;
    this.#options = options;
  }

  static async open(options: NodesOptions = {}): Promise<JobNodes> {
    if (options.stores !== undefined) return new JobNodes({ ...options.stores, close: async () => undefined }, options);
    const database = await openDatabase(':memory:');
    const writes = await openDurableWrites(database, ':memory:');
    const close = async () => {
      await writes.close();
      await database.destroy();
    };
    return new JobNodes({ database, writes, close }, options);
  }

  async start(id: string): Promise<TestNode> {
    this.living.add(id);
    const cluster = new TestCluster(this, id);
    const { database, writes } = this;
    const jobs = await JobsHarness.open({
      store: null,
      ...this.#options,
      nodeId: id,
      cluster: this.#options.isAlone === true ? null : cluster,
      stores: { database, writes },
    });
    const node = { id, jobs, cluster };
    this.#nodes.push(node);
    return node;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { jobs } of this.#nodes) await jobs[Symbol.asyncDispose]();
    await this.#close();
  }
}
