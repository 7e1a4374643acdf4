import { tmpdir } from 'node:os';
import type { KyselyPlugin } from 'kysely';
import type { PackageDirectories } from '../../src/agents/agent-code.ts';
import { Agents } from '../../src/agents/agents.ts';
import type { AgentsOptions } from '../../src/agents/options.ts';
import { failedPrecondition } from '../../src/core/error.ts';
import type { InstanceSpec, MountSpec } from '../../src/core/instance.ts';
import type { InstancesOptions } from '../../src/instances/contract.ts';
import { Instances } from '../../src/instances/instances.ts';
import { Ledger } from '../../src/instances/ledger.ts';
import { SILENCE_TIMES } from '../../src/instances/silence-times.ts';
import { TenantBudget } from '../../src/lib/budgets.ts';
import type { Call, CallOutcome } from '../../src/runtime/call.ts';
import { type Database, openDatabase } from '../../src/storage/database.ts';
import { FakeDriver } from '../fakes/fake-driver.ts';

export const TENANT = 'default';

type Options = Partial<Omit<AgentsOptions & InstancesOptions, 'instances'>> & {
  readonly openCallBytes?: TenantBudget;
  /** Plugins of the database, which inject faults. */
  readonly plugins?: readonly KyselyPlugin[];
};

export interface LogLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly fields: Record<string, unknown>;
  readonly message: string;
}

/** Starts agents and instances over an in-memory database and a fake driver, which outlive their servers. */
export class Harness {
  readonly driver = new FakeDriver();
  readonly logs: LogLine[] = [];
  readonly database: Database;
  instances!: Instances;
  agents!: Agents;
  readonly #options: Options;
  readonly #servers: { readonly instances: Instances; readonly agents: Agents }[] = [];

  private constructor(database: Database, options: Options) {
    this.database = database;
    this.#options = options;
    this.driver.handlers.set('echo', event => event);
    this.driver.handlers.set('count', (_event, { state }) => {
      const count = ((state.get('count') as number | undefined) ?? 0) + 1;
      state.set('count', count);
      return count;
    });
    this.driver.handlers.set('exit', (event, { exit }) => exit(event as number));
    this.driver.handlers.set('fail', () => {
      throw new Error('broken');
    });
    this.newServer();
  }

  static async open(options: Options = {}): Promise<Harness> {
    const { plugins = [], ...rest } = options;
    const database = plugins.reduce((opened, plugin) => opened.withPlugin(plugin), await openDatabase(':memory:'));
    const harness = new Harness(database, rest);
    await harness.agents.start();
    await harness.instances.start();
    return harness;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.driver.faults.away = undefined;
    for (const server of this.#servers) await closed(server);
    await this.driver.dispose();
    await this.database.destroy();
  }

  /** Builds the parts of a new server without ending the previous one. */
  newServer(options: Options = {}): Instances {
    const log = (level: LogLine['level']) => (fields: object, message: string) => {
      this.logs.push({ level, fields: fields as Record<string, unknown>, message });
    };
    const {
      openCallBytes = new TenantBudget(64 * 1024 * 1024),
      ledger = new Ledger({
        machine: { cpuMillis: 4000, memoryMb: 16_384, processes: 32_768 },
        overcommit: { cpu: 1000, memory: 1000, processes: 1000 },
        openCallBytes,
      }),
      ...rest
    } = { ...this.#options, ...options };
    const shared = {
      database: this.database,
      ledger,
      drivers: async () => this.driver,
      sweptDrivers: ['fake'] as const,
      nodeId: 'node-1',
      log: { info: log('info'), warn: log('warn'), error: log('error') },
      createTimeoutMs: 10_000,
      maxWaitingCalls: 1000,
      maxStarting: 1000,
      cheapDrivers: ['fake'] as const,
      maxProcesses: 256,
      network: 'host' as const,
      requireIsolation: false,
      silence: { ...SILENCE_TIMES, unknownMs: 200, lookMs: 200, lookPauseMs: 20, awayRetryMs: 100 },
      orphanGraceMs: 0,
      reconcileIntervalMs: 3_600_000,
      ...rest,
    };
    this.instances = new Instances(shared.database, shared);
    this.agents = new Agents({ ...shared, instances: this.instances });
    this.#servers.push({ instances: this.instances, agents: this.agents });
    return this.instances;
  }

  /** Closes the server; its instances continue to run. */
  async closeServer(): Promise<void> {
    await closed(this);
  }

  /** Closes the server without touching its instances and starts another one. */
  async restartServer(options: Options = {}): Promise<void> {
    await this.closeServer();
    this.newServer(options);
    await this.agents.start();
    await this.instances.start();
  }

  /** Creates an agent and returns its id. */
  async create(name: string, changes: Partial<InstanceSpec> = {}): Promise<string> {
    return (await this.agents.create({ spec: specOf(name, changes) })).id;
  }

  invoke(id: string, event: unknown = {}, call: Partial<Call> = {}): Promise<CallOutcome> {
    return this.agents.invoke(TENANT, id, callOf(event, call));
  }

  /** Returns the value of the handler; fails when the call did not succeed. */
  async value(id: string, event: unknown = {}): Promise<unknown> {
    const outcome = await this.invoke(id, event);
    if (!outcome.ok) throw new Error(`code=${outcome.code} err=${outcome.text}`);
    return JSON.parse(outcome.data.toString());
  }
}

async function closed({
  agents,
  instances,
}: {
  readonly agents: Agents;
  readonly instances: Instances;
}): Promise<void> {
  await agents.close({ stopAgents: false, graceMs: 0 });
  await instances.close('the server is stopping');
}

export function callOf(event: unknown = {}, call: Partial<Call> = {}): Call {
  return {
    header: { traceId: 't', traceparent: '', requestId: 'r' },
    body: Buffer.from(JSON.stringify(event)),
    timeoutMs: 20_000,
    ...call,
  };
}

export function specOf(name: string, changes: Partial<InstanceSpec> = {}): InstanceSpec {
  return {
    tenant: TENANT,
    namespace: 'ns',
    name,
    sandboxType: 'fake',
    runtime: 'python3.11',
    codePath: '',
    handler: 'echo',
    initializer: '',
    preStop: '',
    rootfs: { type: 'host', imageUrl: 'img', user: '' },
    ports: [],
    cpuMillis: 1000,
    memoryMb: 128,
    env: {},
    workspace: '',
    mounts: [],
    callTimeoutMs: 20_000,
    initTimeoutMs: 5_000,
    preStopTimeoutMs: 0,
    concurrency: 1,
    functionName: '',
    functionVersion: '',
    functionUrn: '',
    ...changes,
  };
}

/** Returns a promise and its resolver; a handler waits for the promise until the test opens it. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open!: () => void;
  const opened = new Promise<void>(resolve => {
    open = resolve;
  });
  return { opened, open };
}

/** Returns a ledger for a machine with capacity for the given number of agents. */
export function ledgerOf(agents: number): Ledger {
  return new Ledger({
    machine: { cpuMillis: 1_000_000, memoryMb: agents * 128, processes: 1_000_000 },
    overcommit: { cpu: 1, memory: 1, processes: 1 },
    openCallBytes: new TenantBudget(64 * 1024 * 1024),
  });
}

/** Mount specification of a code package of `fakePackages`. */
export const CODE: MountSpec = { source: `code://${'ab'.repeat(32)}`, target: '/code', readonly: true };

/** Fake code packages that are only counted; `users` lists who uses one. */
export function fakePackages() {
  const users = new Set<string>();
  const faults: { missing: boolean; gate: Promise<void> | undefined; asked: number } = {
    missing: false,
    gate: undefined,
    asked: 0,
  };
  const packages: PackageDirectories = {
    place: async (_tenant, _sha256, user) => {
      faults.asked += 1;
      await faults.gate;
      if (faults.missing) throw failedPrecondition('the code package does not exist');
      users.add(user);
      return tmpdir();
    },
    confirm: async () => {
      if (faults.missing) throw failedPrecondition('the code package does not exist');
    },
    registerUser: (_tenant, _sha256, user) => void users.add(user),
    release: async user => void users.delete(user),
  };
  return { packages, users, faults };
}
