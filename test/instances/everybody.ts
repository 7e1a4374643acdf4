import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { Agents } from '../../src/agents/agents.ts';
import { CodeStore } from '../../src/code/code-store.ts';
import { type Job, readJobSubmission } from '../../src/core/job.ts';
import { HELD_FOR_GOOD } from '../../src/core/lease.ts';
import type { FunctionInstance } from '../../src/functions/function-instance.ts';
import { SandboxLauncher } from '../../src/functions/sandbox-launcher.ts';
import type { InstancesOptions } from '../../src/instances/contract.ts';
import { Instances } from '../../src/instances/instances.ts';
import { Ledger, type LedgerOptions } from '../../src/instances/ledger.ts';
import { createJobs, type JobService } from '../../src/jobs/create-jobs.ts';
import { TenantBudget } from '../../src/lib/budgets.ts';
import { TenantDisk } from '../../src/lib/tenant-disk.ts';
import type { SandboxSpec, StartedSandbox } from '../../src/sandbox/driver.ts';
import { type Database, openDatabase } from '../../src/storage/database.ts';
import { listInstancesOfNode } from '../../src/storage/queries/instances.ts';
import { type DurableWrites, openDurableWrites } from '../../src/storage/writes/durable.ts';
import { callOf, specOf, TENANT } from '../agents/harness.ts';
import { FakeDriver } from '../fakes/fake-driver.ts';
import { functionDefinition } from '../functions/harness.ts';
import { removalsIn } from '../parts/removals.ts';
import { LastSteps } from './last-steps.ts';

export const KEY = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };
const JOB_SIZE = { cpuMillis: 1000, memoryMb: 256 };
const MAX_PROCESSES = 64;

/** A driver in which builds of environments succeed at once. */
class Driver extends FakeDriver {
  buildsEnd = true;

  override async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    const started = await super.start(spec, signal);
    if (isBuild(spec) && this.buildsEnd) this.kill(spec.instanceId, { code: 0, signal: null });
    return started;
  }
}

/** Returns true for a command that is not a job, which is a build. */
const isBuild = ({ command, env }: SandboxSpec) => command.kind === 'exec' && env.ROOKERY_JOB_ID === undefined;

export interface ServerOptions extends Partial<InstancesOptions> {
  readonly machine?: Partial<Pick<LedgerOptions, 'machine' | 'overcommit'>>;
}

/** A server: all owners of instances over one `Instances` and one `Ledger`. */
export class Server {
  readonly steps = new LastSteps();
  readonly instances: Instances;
  readonly ledger: Ledger;
  readonly agents: Agents;
  readonly starter: SandboxLauncher;
  readonly jobs: JobService;
  /** Instances of functions that this server adopted. */
  readonly adopted: FunctionInstance[] = [];
  readonly #writes: DurableWrites;

  static async make(bed: Everybody, options: ServerOptions): Promise<Server> {
    const steps = new LastSteps();
    const database = steps.database(bed.database);
    return new Server(bed, options, steps, database, await openDurableWrites(database, ':memory:'));
  }

  private constructor(
    bed: Everybody,
    { machine, ...options }: ServerOptions,
    steps: LastSteps,
    database: Database,
    writes: DurableWrites,
  ) {
    this.steps = steps;
    this.#writes = writes;
    const driver = steps.driver(bed.driver);
    const drivers = async () => driver;
    const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
    this.ledger = new Ledger({
      machine: { cpuMillis: 1_000_000, memoryMb: 1_000_000, processes: 1_000_000 },
      overcommit: { cpu: 1, memory: 1, processes: 1 },
      openCallBytes: new TenantBudget(1024 * 1024),
      ...machine,
    });
    const rules = { maxProcesses: MAX_PROCESSES, network: 'host', requireIsolation: false } as const;
    const shared = {
      database,
      drivers,
      sweptDrivers: ['fake'] as const,
      cheapDrivers: ['fake'] as const,
      nodeId: 'node-1',
      log,
      createTimeoutMs: 10_000,
      orphanGraceMs: 0,
      reconcileIntervalMs: 3_600_000,
      ...rules,
      ...options,
    };
    this.instances = new Instances(database, shared);
    const owners = { ...shared, instances: this.instances, ledger: this.ledger };
    this.agents = new Agents({ ...owners, maxWaitingCalls: 100, maxStarting: 100 });
    this.starter = new SandboxLauncher({
      ...owners,
      maxStarting: 100,
      openCallBytes: this.ledger.openCallBytes,
      codeStore: new CodeStore({
        disk: new TenantDisk(Number.MAX_SAFE_INTEGER),
        bootId: null,
        dataDir: bed.directory,
        policy: { closed: [], allow: null },
        removals: removalsIn(bed.directory),
        s3: { endpoint: '', region: '', accessKeyId: '', secretAccessKey: '', allowedEndpoints: [] },
        maxCacheBytes: 0,
        maxArchiveBytes: 0,
        maxUnpackedBytes: 0,
        maxEntries: 0,
      }),
    });
    this.jobs = createJobs({
      cluster: null,
      store: null,
      ...owners,
      ...JOB_SIZE,
      writes,
      driver: drivers,
      rootfs: 'host',
      dataDir: bed.directory,
      removals: removalsIn(bed.directory),
      python: async () => bed.python,
      openHostPath: null,
      sandbox: rules,
      environment: {},
      pipEnvironment: {},
      limits: { maxRunning: 100, maxRunningPerTenant: 100, cpuMillis: 100_000, memoryMb: 1_000_000, custom: {} },
      maxOpen: 1000,
      maxOpenPerTenant: 1000,
      maxPackageBytes: 1024 * 1024,
      disk: new TenantDisk(Number.MAX_SAFE_INTEGER),
      environmentLimits: { maxBytes: 1024 * 1024, maxUnusedBytes: 1024 * 1024 },
      unpack: { maxBytes: 1024 * 1024, maxEntries: 100 },
      startTimeoutMs: 10_000,
      setupTimeoutMs: 10_000,
      stopGraceMs: 0,
      keepMs: 3_600_000,
      keepCount: 1000,
      metrics: { started: () => undefined, attempted: () => undefined, ended: () => undefined },
    });
  }

  async start(): Promise<void> {
    await this.instances.start();
    this.adopted.push(...(await this.starter.adopt(instance => void this.adopted.push(instance))));
    await this.jobs.start();
  }

  /** Closes the server in order; running sandboxes continue. */
  async close(): Promise<void> {
    await this.jobs.close(null).catch(() => undefined);
    await this.agents.close({ stopAgents: false, graceMs: 0 }).catch(() => undefined);
    await this.starter.close();
    await this.instances.close('the server is stopping');
    await this.#writes.close();
  }
}

/** A database, sandboxes and files that outlive the servers started over them. */
export class Everybody {
  readonly driver = new Driver();
  readonly database: Database;
  readonly directory = mkdtempSync(join(tmpdir(), 'rk-everybody-'));
  /** Path of a script that prints the prefix and version of a Python interpreter. */
  readonly python = join(this.directory, 'python');
  readonly #servers: Server[] = [];
  #names = 0;

  private constructor(database: Database) {
    this.database = database;
    writeFileSync(this.python, '#!/bin/sh\nprintf "/usr\\n3.11.2\\n"\n');
    chmodSync(this.python, 0o755);
    this.driver.handlers.set('echo', event => event);
  }

  static async open(options: ServerOptions = {}): Promise<Everybody> {
    const bed = new Everybody(await openDatabase(':memory:'));
    await bed.startServer(options);
    return bed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    Object.assign(this.driver.faults, { away: undefined, startGate: undefined, stopFailures: 0, removeFailures: 0 });
    for (const server of this.#servers) {
      if (server.steps.isDead) server.steps.bury();
      await server.close();
    }
    await this.driver.dispose();
    await this.database.destroy();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** The server that was started last. */
  get server(): Server {
    const server = this.#servers.at(-1);
    if (server === undefined) throw new Error('no server runs');
    return server;
  }

  /** Starts another server in addition to the existing ones. */
  async startServer(options: ServerOptions = {}): Promise<Server> {
    const server = await this.makeServer(options);
    await server.start();
    return server;
  }

  async makeServer(options: ServerOptions = {}): Promise<Server> {
    const server = await Server.make(this, options);
    this.#servers.push(server);
    return server;
  }

  async createAgent(changes: Parameters<typeof specOf>[1] = {}): Promise<string> {
    return (await this.server.agents.create({ spec: specOf(`a${++this.#names}`, changes) })).id;
  }

  /** Creates an agent that replaces the agent created last; returns its id. */
  async replaceAgent(changes: Parameters<typeof specOf>[1] = {}): Promise<string> {
    return (await this.server.agents.create({ spec: specOf(`a${this.#names}`, changes), replaces: true })).id;
  }

  launchFunction(changes: Parameters<typeof functionDefinition>[0] = {}): Promise<FunctionInstance> {
    const code = { storage: 'local', path: this.directory } as const;
    return this.server.starter.launch(functionDefinition({ handler: 'echo', code, ...changes }), KEY, HELD_FOR_GOOD);
  }

  /** Submits a job and returns its id. With `pip` the service builds an environment first. */
  async submitJob(pip: readonly string[] = []): Promise<string> {
    const id = `j${++this.#names}`;
    const body = { entrypoint: 'true', submission_id: id, ...(pip.length > 0 ? { runtime_env: { pip } } : {}) };
    await this.server.jobs.jobs.submit(TENANT, readJobSubmission(body, ''));
    return id;
  }

  job(id: string): Promise<Job> {
    return this.server.jobs.jobs.get(TENANT, id);
  }

  async untilJob(id: string, status: Job['status']): Promise<Job> {
    return await vi.waitFor(async () => {
      const job = await this.job(id);
      if (job.status !== status) throw new Error(`expected ${status}, it is ${job.status}: ${job.message}`);
      return job;
    });
  }

  rows() {
    return listInstancesOfNode(this.database, 'node-1');
  }

  call(id: string) {
    return this.server.agents.invoke(TENANT, id, callOf());
  }

  /**
   * Waits until the data agree: each sandbox belongs to one record, and each RUNNING record has a running
   * sandbox. No operation is incomplete, and the ledger has no reservation without an owner.
   */
  async untilInOrder(): Promise<void> {
    await vi.waitFor(
      async () => {
        await this.server.instances.reconcile();
        const rows = await this.rows();
        for (const { status } of rows) expect(['RUNNING', 'FAILED']).toContain(status);
        const listed = await this.driver.list();
        const known = new Map(rows.map(({ id, handle }) => [id, handle]));
        for (const { instanceId, handle } of listed) {
          const ofRow = known.get(instanceId) ?? null;
          expect(ofRow === null ? null : JSON.parse(ofRow)).toEqual(handle);
        }
        expect(new Set(listed.map(({ instanceId }) => instanceId)).size).toBe(listed.length);
        const running = rows.filter(({ status }) => status === 'RUNNING').map(({ id }) => id);
        expect(this.driver.runningIds.toSorted()).toEqual(running.toSorted());
        // An agent has its reservation as long as its sandbox runs.
        const ofAgents = rows.filter(({ owner, status }) => owner.kind === 'agent' && status === 'RUNNING');
        const promised = ofAgents.reduce((sum, { memoryMb }) => sum + memoryMb, 0);
        expect(this.server.ledger.reservations.by.agent.memoryMb).toBe(promised);
        // A job has its record exactly as long as its sandbox.
        const jobs = await this.database.selectFrom('jobs').select(['status', 'instance_id']).execute();
        const ofJobs = rows.filter(({ owner }) => owner.kind === 'job').map(({ id }) => id);
        const open = jobs.filter(({ status }) => status === 'RUNNING').map(job => job.instance_id);
        expect(ofJobs.toSorted()).toEqual(open.toSorted());
      },
      { timeout: 30_000, interval: 20 },
    );
  }
}
