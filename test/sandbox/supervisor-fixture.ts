import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SupervisorDriver, type SupervisorDriverOptions } from '../../src/sandbox/supervisor/driver.ts';
import type { TestSupervisord } from '../parts/supervisor.ts';
import { DriverFixture } from './driver-fixture.ts';

/** Provides supervisor drivers over a test supervisord, with a data directory of their own. */
export class SupervisorFixture extends DriverFixture<SupervisorDriver, SupervisorDriverOptions> {
  readonly #supervisord: TestSupervisord;

  constructor(supervisord: TestSupervisord) {
    super(mkdtempSync(join(tmpdir(), 'rookery-sup-')), '/code');
    this.#supervisord = supervisord;
  }

  protected override make(options: Partial<SupervisorDriverOptions>): SupervisorDriver {
    const { url, includeDir } = this.#supervisord;
    return new SupervisorDriver({ ...this.common(), url, credentialsFile: null, includeDir, ...options });
  }
}
