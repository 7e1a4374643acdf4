import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ENGINE_STATE } from '../../src/core/host-path.ts';
import type { SandboxSpec } from '../../src/sandbox/driver.ts';
import { SupervisorDriver, type SupervisorDriverOptions } from '../../src/sandbox/supervisor/driver.ts';
import { SILENT } from '../../src/telemetry/logger.ts';
import { removalsIn } from '../parts/removals.ts';
import type { TestSupervisord } from '../parts/supervisor.ts';
import { ProcessFixture } from './process-fixture.ts';

/** A supervisor driver over a data directory of its own. */
export class SupervisorFixture {
  readonly dataDir: string;
  readonly codePath: string;
  readonly #supervisord: TestSupervisord;
  readonly #specs: ProcessFixture;
  readonly #drivers: SupervisorDriver[] = [];

  constructor(supervisord: TestSupervisord) {
    this.dataDir = mkdtempSync(join(tmpdir(), 'rookery-sup-'));
    mkdirSync(this.dataDir, { recursive: true });
    this.#supervisord = supervisord;
    this.#specs = new ProcessFixture({ dataDir: this.dataDir });
    this.codePath = this.#specs.codePath;
  }

  driver(options: Partial<SupervisorDriverOptions> = {}): SupervisorDriver {
    const driver = new SupervisorDriver({
      environment: process.env,
      dataDir: this.dataDir,
      mountPolicy: { closed: [this.dataDir, ...ENGINE_STATE], allow: null },
      removals: removalsIn(this.dataDir),
      logger: SILENT,
      url: this.#supervisord.url,
      credentialsFile: null,
      includeDir: this.#supervisord.includeDir,
      ...options,
    });
    this.#drivers.push(driver);
    return driver;
  }

  spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
    return this.#specs.spec(changes);
  }

  async dispose(): Promise<void> {
    const last = this.driver();
    for (const { handle } of await last.list()) await last.remove(handle);
    for (const driver of this.#drivers) await driver.close();
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}
