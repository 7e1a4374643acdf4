import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ENGINE_STATE } from '../../src/core/host-path.ts';
import type { SandboxSpec } from '../../src/sandbox/driver.ts';
import { ProcessDriver, type ProcessDriverOptions } from '../../src/sandbox/process/driver.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { removalsIn } from '../parts/removals.ts';
import type { DriverEntries } from '../suites/sandbox-driver.ts';

export const BEHAVIOURS: DriverEntries = {
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

const CODE = join(import.meta.dirname, 'code');

/** A process driver over a data directory of its own. */
export class ProcessFixture {
  readonly dataDir: string;
  /** Where the behaviours are inside. */
  readonly codePath: string;
  readonly #options: Partial<ProcessDriverOptions>;
  readonly #drivers: ProcessDriver[] = [];

  constructor(options: Partial<ProcessDriverOptions> = {}) {
    this.#options = options;
    this.dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), 'rookery-process-'));
    // Without a mount namespace the code is where it is on the host.
    this.codePath = options.disable?.some(layer => layer === 'namespaces' || layer === 'mount') ? CODE : '/code';
    mkdirSync(this.dataDir, { recursive: true });
  }

  driver(options: Partial<ProcessDriverOptions> = {}): ProcessDriver {
    const driver = new ProcessDriver({
      environment: process.env,
      dataDir: this.dataDir,
      mountPolicy: { closed: [this.dataDir, ...ENGINE_STATE], allow: null },
      removals: removalsIn(this.dataDir),
      logger: createLogger({ level: 'silent', format: 'json' }),
      spares: 2,
      launcherIdleExitMs: 2_000,
      ...this.#options,
      ...options,
    });
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

  async dispose(): Promise<void> {
    const last = this.driver();
    for (const { handle } of await last.list()) await last.remove(handle);
    for (const driver of this.#drivers) await driver.close();
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}
