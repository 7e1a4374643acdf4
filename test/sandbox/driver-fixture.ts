import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ENGINE_STATE } from '../../src/core/host-path.ts';
import type { SandboxDriver, SandboxSpec } from '../../src/sandbox/driver.ts';
import { SILENT } from '../../src/telemetry/logger.ts';
import { removalsIn } from '../parts/removals.ts';
import type { DriverEntries, DriverUnderTest } from '../suites/sandbox-driver.ts';

export const CODE = join(import.meta.dirname, 'code');

const BEHAVIOURS: DriverEntries = {
  echo: 'behaviours.echo',
  count: 'behaviours.count',
  exit: 'behaviours.exit',
  printLines: 'behaviours.print_lines',
  real: {
    killSelf: 'behaviours.kill_self',
    environment: 'behaviours.environment',
    process: 'behaviours.process',
    write: 'behaviours.write',
    read: 'behaviours.read',
    eatMemory: 'behaviours.eat_memory',
    forkBomb: 'behaviours.fork_bomb',
    leaveChildren: 'behaviours.leave_children',
  },
};

/** Stages of a start that the native program reports (`runtimes/native/src/start.c`). */
export const NATIVE_STAGES = ['orders', 'mounts', 'limits', 'rights'];

/** Drivers of one kind with their own data directory, and the sandboxes that they start. */
export abstract class DriverFixture<D extends SandboxDriver, Options> {
  readonly dataDir: string;
  /** Path of the behaviours inside. */
  readonly codePath: string;
  readonly #drivers: D[] = [];

  constructor(dataDir: string, codePath: string) {
    this.dataDir = dataDir;
    this.codePath = codePath;
    mkdirSync(dataDir, { recursive: true });
  }

  protected abstract make(options: Partial<Options>): D;

  driver(options: Partial<Options> = {}): D {
    const driver = this.make(options);
    this.#drivers.push(driver);
    return driver;
  }

  spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
    return {
      instanceId: randomUUID(),
      tenant: 'default',
      command: { kind: 'python', version: '3.11' },
      secret: randomUUID(),
      rootfs: { type: 'host', imageUrl: 'test', user: '' },
      env: { HOME: '/tmp', PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8' },
      workingDir: '/',
      mounts: [{ source: CODE, target: this.codePath, readonly: true }],
      ports: [],
      cpuMillis: 1000,
      memoryMb: 256,
      maxProcesses: 256,
      maxOpenFiles: 4096,
      network: 'host',
      requireIsolation: false,
      ...changes,
    };
  }

  /** Returns the driver for the suites. `behind` is disposed after the fixture. */
  underTest(user: DriverUnderTest['user'], behind?: { dispose(): Promise<void> }): DriverUnderTest {
    return {
      driver: this.driver(),
      entries: BEHAVIOURS,
      codePath: this.codePath,
      spec: () => this.spec(),
      reopen: () => this.driver(),
      user,
      dispose: async () => {
        await this.dispose();
        await behind?.dispose();
      },
    };
  }

  async dispose(): Promise<void> {
    const last = this.driver();
    for (const { handle } of await last.list()) await last.remove(handle);
    for (const driver of this.#drivers) await driver.close();
    rmSync(this.dataDir, { recursive: true, force: true });
  }

  /** Returns the options that every driver needs. */
  protected common() {
    const { dataDir } = this;
    const mountPolicy = { closed: [dataDir, ...ENGINE_STATE], allow: null };
    return { environment: process.env, dataDir, mountPolicy, removals: removalsIn(dataDir), logger: SILENT };
  }
}
