import { failedPrecondition, messageOf } from '../core/error.ts';
import type { SandboxType } from '../core/instance.ts';
import type { ProbeResult, SandboxDriver } from './driver.ts';

/**
 * A function for each driver of this installation that creates it on first use and loads its heavy libraries
 * then.
 */
export type DriverLoaders = Readonly<Partial<Record<SandboxType, () => Promise<SandboxDriver>>>>;

/** The drivers of this installation by name, each created once. */
export class Drivers {
  readonly #loaders: DriverLoaders;
  readonly #loaded = new Map<SandboxType, Promise<SandboxDriver>>();

  constructor(loaders: DriverLoaders) {
    this.#loaders = loaders;
  }

  /** Names of the drivers that this installation can create. */
  get names(): readonly SandboxType[] {
    return Object.keys(this.#loaders) as SandboxType[];
  }

  /**
   * Returns the driver, always the same object. Fails with `failed_precondition` (`<name> is not available:
   * <why>`).
   */
  async get(name: SandboxType): Promise<SandboxDriver> {
    const load = this.#loaders[name];
    if (!load) throw failedPrecondition(`${name} is not available: ${notBuiltIn(name)}`);
    let loading = this.#loaded.get(name);
    if (!loading) {
      loading = load();
      this.#loaded.set(name, loading);
      // The next call tries again: a missing library may have been installed by then.
      loading.catch(() => this.#loaded.delete(name));
    }
    try {
      return await loading;
    } catch (error) {
      throw failedPrecondition(`${name} is not available: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Checks whether the driver works on this machine now. Never throws. */
  async probe(name: SandboxType): Promise<ProbeResult> {
    if (!this.#loaders[name]) return { available: false, reason: notBuiltIn(name) };
    try {
      return await (await this.get(name)).probe();
    } catch (error) {
      return { available: false, reason: messageOf(error) };
    }
  }

  /** Closes the drivers that were used. Never rejects. */
  async close(): Promise<void> {
    const loaded = await Promise.allSettled(this.#loaded.values());
    await Promise.allSettled(loaded.map(result => (result.status === 'fulfilled' ? result.value.close() : undefined)));
    this.#loaded.clear();
  }
}

function notBuiltIn(name: SandboxType): string {
  return `this installation has no ${name} driver`;
}
