import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ProcessDriver, type ProcessDriverOptions } from '../../src/sandbox/process/driver.ts';
import { CODE, DriverFixture } from './driver-fixture.ts';

export class ProcessFixture extends DriverFixture<ProcessDriver, ProcessDriverOptions> {
  readonly #options: Partial<ProcessDriverOptions>;

  constructor(options: Partial<ProcessDriverOptions> = {}) {
    // Without a mount namespace the code is where it is on the host.
    const isOnHost = options.disable?.some(layer => layer === 'namespaces' || layer === 'mount');
    super(options.dataDir ?? mkdtempSync(join(tmpdir(), 'rookery-process-')), isOnHost ? CODE : '/code');
    this.#options = options;
  }

  protected override make(options: Partial<ProcessDriverOptions>): ProcessDriver {
    return new ProcessDriver({
      ...this.common(),
      spares: 2,
      zygoteIdleExitMs: 2_000,
      ...this.#options,
      ...options,
    });
  }
}

/** Who else code can be. An ordinary user can be anybody in a user namespace of its own, and nobody else without one. */
export function otherUser(hasNamespaces: boolean): { readonly name: string; readonly uid: number } | null {
  return process.getuid?.() === 0 || hasNamespaces ? { name: 'daemon', uid: 1 } : null;
}
