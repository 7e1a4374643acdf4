import { parseCodeUrl, splitMounts } from '../core/code-package.ts';
import type { InstanceSpec, MountSpec } from '../core/instance.ts';
import type { LayerPlaces } from '../instances/layer.ts';
import type { Log } from '../lib/log.ts';
import type { InstanceRef } from '../storage/queries/instances.ts';
import type { AgentTable } from './agent-table.ts';

/** Code packages, unpacked on this node. */
export interface PackageDirectories {
  /**
   * Returns the directory, which stays until `release`. Fails with `failed_precondition` or `unavailable`.
   */
  place(tenant: string, sha256: string, user: string): Promise<string>;
  /** Checks that the package still exists after a record refers to it. Fails with `failed_precondition`. */
  confirm(tenant: string, sha256: string): Promise<void>;
  /** Registers a sandbox from before a restart as a user of its package. */
  registerUser(tenant: string, sha256: string, user: string): void;
  release(user: string): Promise<void>;
}

/**
 * Code packages and dependency layers that sandboxes of agents use. Each sandbox counts as a user of its own.
 */
export class AgentCode {
  readonly #places: PackageDirectories | null;
  readonly #layers: LayerPlaces | null;
  readonly #log: Log;
  readonly #table: AgentTable;

  /** `places` null: code packages are not available. `layers` null: dependencies are not installed. */
  constructor(table: AgentTable, places: PackageDirectories | null, log: Log, layers: LayerPlaces | null = null) {
    this.#table = table;
    this.#places = places;
    this.#layers = layers;
    this.#log = log;
  }

  /**
   * Returns the spec with mounts for its packages and its dependency layer; the same object if it has
   * neither. Undone by `undo`, or by `release` when the sandbox is removed.
   */
  async place(ref: InstanceRef, spec: InstanceSpec): Promise<InstanceSpec> {
    const { packages, others } = splitMounts(spec.mounts);
    const places = packages.length === 0 ? null : this.#places;
    const layers = spec.dependencies === 'auto' ? this.#layers : null;
    if (places === null && layers === null) return spec;
    const user = userOf(ref);
    this.#add(ref);
    try {
      let placed = spec;
      if (places !== null) {
        const platformMounts: MountSpec[] = [...(spec.platformMounts ?? [])];
        for (const { source, target } of packages) {
          const sha256 = parseCodeUrl(source) ?? '';
          platformMounts.push({ source: await places.place(spec.tenant, sha256, user), target, readonly: true });
        }
        placed = { ...spec, mounts: others, platformMounts };
      }
      return layers === null ? placed : await layers.place(placed, user);
    } catch (error) {
      await this.undo(ref);
      throw error;
    }
  }

  /**
   * Checks the packages after the record is written, which protects them from removal. Fails as `place` does
   * if a package was removed before.
   */
  async confirm({ tenant, mounts }: InstanceSpec): Promise<void> {
    for (const { source } of splitMounts(mounts).packages)
      await this.#places?.confirm(tenant, parseCodeUrl(source) ?? '');
  }

  /** Registers a sandbox from before a restart, so that its code is not removed. */
  registerUser(ref: InstanceRef, { tenant, mounts, dependencies }: InstanceSpec): void {
    // `CodeDependencies` keeps the users of its layers on disk.
    if (dependencies === 'auto') this.#add(ref);
    for (const { source } of splitMounts(mounts).packages) {
      this.#add(ref);
      this.#places?.registerUser(tenant, parseCodeUrl(source) ?? '', userOf(ref));
    }
  }

  /**
   * Releases the code of a removed sandbox and of all earlier ones of the agent. So the caller of a failed
   * restart need not track which of them has code.
   */
  release({ id, epoch }: InstanceRef): void {
    for (const held of this.#epochsOf(id)) if (held <= epoch) void this.undo({ id, epoch: held });
  }

  /**
   * Releases the code of one sandbox; an earlier one may run and keeps its code. Resolves when all is
   * released. Never rejects.
   */
  async undo(ref: InstanceRef): Promise<void> {
    const epochs = this.#epochsOf(ref.id);
    if (!epochs.includes(ref.epoch)) return;
    const left = epochs.filter(epoch => epoch !== ref.epoch);
    this.#table.set(ref.id, { codeEpochs: left.length === 0 ? undefined : left });
    const user = userOf(ref);
    try {
      await Promise.all([this.#places?.release(user), this.#layers?.release(user)]);
    } catch (error) {
      this.#log.warn({ instanceId: ref.id, err: error }, 'cannot release code of agent');
    }
  }

  #add({ id, epoch }: InstanceRef): void {
    const epochs = this.#epochsOf(id);
    if (!epochs.includes(epoch)) this.#table.set(id, { codeEpochs: [...epochs, epoch] });
  }

  #epochsOf(id: string): readonly number[] {
    return this.#table.get(id)?.codeEpochs ?? [];
  }
}

/**
 * Returns the name under which a sandbox uses code. An agent's next sandbox gets its code before the last one
 * is removed.
 */
function userOf({ id, epoch }: InstanceRef): string {
  return `${id}.${epoch}`;
}
