import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { vi } from 'vitest';
import { isEnded, type Job, type JobStatus, readJobSubmission } from '../../src/core/job.ts';
import type { SecretSource } from '../../src/core/secret.ts';
import { Instances } from '../../src/instances/instances.ts';
import { Ledger } from '../../src/instances/ledger.ts';
import type { JobCluster } from '../../src/jobs/cluster.ts';
import { createJobs, type JobService } from '../../src/jobs/create-jobs.ts';
import { TenantBudget } from '../../src/lib/budgets.ts';
import { Removals } from '../../src/lib/removals.ts';
import { TenantDisk } from '../../src/lib/tenant-disk.ts';
import type { ObjectStore } from '../../src/object-store/object-store.ts';
import type { LogRequest, SandboxHandle, SandboxSpec, StartedSandbox } from '../../src/sandbox/driver.ts';
import { type Database, openDatabase } from '../../src/storage/database.ts';
import { type DurableWrites, openDurableWrites } from '../../src/storage/writes/durable.ts';
import { FakeDriver } from '../fakes/fake-driver.ts';

export const TENANT = 'default';
const MACHINE = { cpuMillis: 4000, memoryMb: 16_384, processes: 32_768 };

/** A driver whose sandboxes may end before their start returns. */
class JobDriver extends FakeDriver {
  /** Exit code of the next sandbox, which ends before its start returns; undefined when it continues. */
  exitsAtOnce: number | undefined;
  /** Ids of the jobs whose commands began, one entry for each start. */
  readonly begun: string[] = [];
  /** Output of each command, by job id. */
  readonly output = new Map<string, string>();

  override async *logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    const spec = this.starts.find(({ instanceId }) => instanceId === handle.instanceId);
    const text = this.output.get(spec?.env.ROOKERY_JOB_ID ?? '');
    if (text !== undefined && this.instanceIds.includes(handle.instanceId)) yield Buffer.from(text);
    yield* super.logs(handle, request, signal);
  }

  override async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    const started = await super.start(spec, signal);
    this.begun.push(spec.env.ROOKERY_JOB_ID ?? '');
    if (this.exitsAtOnce !== undefined) this.kill(spec.instanceId, { code: this.exitsAtOnce, signal: null });
    return started;
  }
}

/** A node in a cluster. The default is a single node with its own database. */
export interface HarnessNode {
  readonly nodeId: string;
  readonly cluster: JobCluster | null;
  readonly store: ObjectStore | null;
  readonly secrets?: SecretSource;
  readonly maxOpen?: number;
  readonly maxOpenPerTenant?: number;
  /** Database and writes that outlive the harness. */
  readonly stores?: { readonly database: Database; readonly writes: DurableWrites };
}

const ALONE: HarnessNode = { nodeId: 'node-1', cluster: null, store: null };

interface Server {
  readonly instances: Instances;
  readonly service: JobService;
  readonly removals: Removals;
}

/** The job service of a server over a driver and a database that outlive it. */
export class JobsHarness {
  readonly driver = new JobDriver();
  readonly database: Database;
  readonly #writes: DurableWrites;
  readonly node: HarnessNode;
  readonly dataDir = mkdtempSync(join(tmpdir(), 'rk-jobs-'));
  readonly warnings: string[] = [];
  #server: Server | undefined;

  private constructor(database: Database, writes: DurableWrites, node: HarnessNode) {
    this.database = database;
    this.#writes = writes;
    this.node = node;
  }

  static async open(node = ALONE): Promise<JobsHarness> {
    const database = node.stores?.database ?? (await openDatabase(':memory:'));
    const writes = node.stores?.writes ?? (await openDurableWrites(database, ':memory:'));
    const harness = new JobsHarness(database, writes, node);
    await harness.startServer();
    return harness;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.driver.faults.away = undefined;
    this.driver.faults.stopFailures = 0;
    await this.stopServer();
    await this.driver.dispose();
    if (this.node.stores === undefined) {
      await this.#writes.close();
      await this.database.destroy();
    }
    rmSync(this.dataDir, { recursive: true, force: true });
  }

  get service(): JobService {
    if (this.#server === undefined) throw new Error('no server runs');
    return this.#server.service;
  }

  async startServer(): Promise<void> {
    const warn = (_details: object, message: string) => void this.warnings.push(message);
    const log = { info: () => undefined, warn, error: () => undefined };
    const { database, driver, node } = this;
    const instances = new Instances(database, {
      drivers: async () => driver,
      sweptDrivers: ['fake'],
      cheapDrivers: [],
      nodeId: node.nodeId,
      log,
      createTimeoutMs: 60_000,
      orphanGraceMs: 0,
      reconcileIntervalMs: 3_600_000,
    });
    const removals = new Removals({ directory: join(this.dataDir, 'leftovers'), report: () => undefined });
    const service = createJobs({
      database,
      writes: this.#writes,
      instances,
      ledger: new Ledger({
        machine: MACHINE,
        overcommit: { cpu: 100, memory: 100, processes: 100 },
        openCallBytes: new TenantBudget(1024 * 1024),
      }),
      driver: async () => driver,
      rootfs: 'host',
      dataDir: this.dataDir,
      removals,
      nodeId: node.nodeId,
      cluster: node.cluster,
      store: node.store,
      ...(node.secrets && { secrets: node.secrets }),
      python: async () => Promise.reject(new Error('no Python is needed here')),
      openHostPath: null,
      sandbox: { maxProcesses: 64, network: 'host', requireIsolation: false },
      environment: {},
      pipEnvironment: {},
      cpuMillis: 1000,
      memoryMb: 256,
      limits: { maxRunning: 100, maxRunningPerTenant: 100, cpuMillis: 100_000, memoryMb: 1_000_000, custom: {} },
      maxOpen: node.maxOpen ?? 1000,
      maxOpenPerTenant: node.maxOpenPerTenant ?? 1000,
      maxPackageBytes: 1024 * 1024,
      disk: new TenantDisk(Number.MAX_SAFE_INTEGER),
      environmentLimits: { maxBytes: 1024 * 1024, maxUnusedBytes: 1024 * 1024 },
      unpack: { maxBytes: 1024 * 1024, maxEntries: 100 },
      startTimeoutMs: 60_000,
      setupTimeoutMs: 60_000,
      stopGraceMs: 0,
      keepMs: 3_600_000,
      keepCount: 1000,
      metrics: { started: () => undefined, attempted: () => undefined, ended: () => undefined },
      log,
    });
    this.#server = { instances, service, removals };
    await instances.start();
    await service.start();
  }

  /** Stops the server. Running jobs continue, or are ended within `stopRunningMs`. */
  async stopServer(stopRunningMs: number | null = null): Promise<void> {
    if (this.#server === undefined) return;
    const { service, instances, removals } = this.#server;
    this.#server = undefined;
    await service.close(stopRunningMs);
    await instances.close('the server is stopping');
    removals.close();
  }

  async restartServer(): Promise<void> {
    await this.stopServer();
    await this.startServer();
  }

  /** Submits a job; `rules` is its metadata, such as `rookery.retries`. */
  async submit(id: string, rules: Record<string, string> = {}): Promise<void> {
    const body = { entrypoint: 'true', submission_id: id, metadata: rules };
    await this.service.jobs.submit(TENANT, readJobSubmission(body, ''));
  }

  job(id: string): Promise<Job> {
    return this.service.jobs.get(TENANT, id);
  }

  async until(id: string, status: JobStatus): Promise<Job> {
    return await vi.waitFor(async () => {
      const job = await this.job(id);
      if (job.status !== status) throw new Error(`expected ${status}, it is ${job.status}: ${job.message}`);
      return job;
    });
  }

  async untilEnded(id: string): Promise<Job> {
    return await vi.waitFor(async () => {
      const job = await this.job(id);
      if (!isEnded(job.status)) throw new Error(`it is ${job.status}: ${job.message}`);
      return job;
    });
  }

  /** Waits until the job runs and returns the id of its instance. */
  async instanceOf(id: string): Promise<string> {
    return (await this.until(id, 'RUNNING')).instanceId;
  }

  /** Ends the command of a running job with this exit code. */
  async exit(id: string, code: number): Promise<void> {
    this.driver.kill(await this.instanceOf(id), { code, signal: null });
  }

  /** Waits until every sandbox is removed. */
  async untilNothingIsLeft(): Promise<void> {
    await vi.waitFor(() => {
      if (this.driver.instanceIds.length > 0) throw new Error(`left: ${this.driver.instanceIds.join(', ')}`);
    });
  }
}
