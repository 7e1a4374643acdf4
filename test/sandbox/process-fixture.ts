import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ProcessDriver, type ProcessDriverOptions } from '../../src/sandbox/process/driver.ts';
import { CODE, DriverFixture } from './driver-fixture.ts';

export class ProcessFixture extends DriverFixture<ProcessDriver, ProcessDriverOptions> {
  readonly #options: Partial<ProcessDriverOptions>;

  constructor(options: Partial<ProcessDriverOptions> = {}) {
    // Without a mount namespace the code has the same path as on the host.
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

/**
 * Returns another user for code, or null. An ordinary user can become any user in its own user namespace, and
 * none without one.
 */
export function otherUser(hasNamespaces: boolean): { readonly name: string; readonly uid: number } | null {
  return process.getuid?.() === 0 || hasNamespaces ? { name: 'daemon', uid: 1 } : null;
}
