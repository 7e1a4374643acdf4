import { Scheduler } from '../../src/agents/agents.ts';
import type { SchedulerOptions } from '../../src/agents/options.ts';
import type { InstanceSpec } from '../../src/core/instance.ts';
import { OpenCallBytes } from '../../src/instances/open-call-bytes.ts';
import type { Call, CallOutcome } from '../../src/runtime/channel.ts';
import { type Database, openDatabase } from '../../src/storage/database.ts';
import { FakeDriver } from '../fakes/fake-driver.ts';

export const TENANT = 'default';

export interface LogLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly fields: Record<string, unknown>;
  readonly message: string;
}

/** A scheduler over a database in memory and a fake driver, both of which outlive it. */
export class Harness {
  readonly driver = new FakeDriver();
  readonly logs: LogLine[] = [];
  readonly database: Database;
  scheduler: Scheduler;
  readonly #options: Partial<SchedulerOptions>;
  #schedulers: Scheduler[] = [];

  private constructor(database: Database, options: Partial<SchedulerOptions>) {
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
    this.scheduler = this.newScheduler();
  }

  static async open(options: Partial<SchedulerOptions> = {}): Promise<Harness> {
    const harness = new Harness(await openDatabase(':memory:'), options);
    await harness.scheduler.start();
    return harness;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.driver.faults.away = undefined;
    for (const scheduler of this.#schedulers) await scheduler.close({ stopAgents: false, graceMs: 0 });
    await this.driver.dispose();
    await this.database.destroy();
  }

  /** A scheduler as a new server would have it; the one before is let be. */
  newScheduler(options: Partial<SchedulerOptions> = {}): Scheduler {
    const log = (level: LogLine['level']) => (fields: object, message: string) => {
      this.logs.push({ level, fields: fields as Record<string, unknown>, message });
    };
    this.scheduler = new Scheduler({
      database: this.database,
      drivers: async () => this.driver,
      sweptDrivers: ['fake'],
      nodeId: 'node-1',
      log: { info: log('info'), warn: log('warn'), error: log('error') },
      createTimeoutMs: 10_000,
      maxWaitingCalls: 1000,
      openCallBytes: new OpenCallBytes(64 * 1024 * 1024),
      maxStarting: 1000,
      maxProcesses: 256,
      network: 'host',
      requireIsolation: false,
      orphanGraceMs: 0,
      reconcileIntervalMs: 3_600_000,
      ...this.#options,
      ...options,
    });
    this.#schedulers.push(this.scheduler);
    return this.scheduler;
  }

  /** The server ends without touching its instances, and another one starts. */
  async restartServer(options: Partial<SchedulerOptions> = {}): Promise<void> {
    await this.scheduler.close({ stopAgents: false, graceMs: 0 });
    await this.newScheduler(options).start();
  }

  /** Creates an agent and returns its id. */
  async create(name: string, changes: Partial<InstanceSpec> = {}): Promise<string> {
    return (await this.scheduler.create({ spec: specOf(name, changes) })).id;
  }

  invoke(id: string, event: unknown = {}, call: Partial<Call> = {}): Promise<CallOutcome> {
    return this.scheduler.invoke(TENANT, id, callOf(event, call));
  }

  /** The handler's value; fails when the call did not succeed. */
  async value(id: string, event: unknown = {}): Promise<unknown> {
    const outcome = await this.invoke(id, event);
    if (!outcome.ok) throw new Error(`code=${outcome.code} err=${outcome.text}`);
    return JSON.parse(outcome.data.toString());
  }
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

/** A promise and its resolver: what a handler waits for until the test lets it go. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open!: () => void;
  const opened = new Promise<void>(resolve => {
    open = resolve;
  });
  return { opened, open };
}
