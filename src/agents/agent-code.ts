import { parseCodeUrl, splitMounts } from '../core/code-package.ts';
import type { InstanceSpec } from '../core/instance.ts';
import type { MountSpec } from '../core/mount.ts';
import type { InstanceLog } from '../instances/contract.ts';
import type { LayerPlaces } from '../instances/layer.ts';
import type { InstanceRef } from '../storage/instances.ts';

/** Code packages, unpacked on this node. */
export interface PackagePlaces {
  /** The directory, which stays until `release`. Fails with `failed_precondition` or `unavailable`. */
  place(tenant: string, sha256: string, user: string): Promise<string>;
  /** Whether it is there, now that a row refers to it. Fails with `failed_precondition`. */
  confirm(tenant: string, sha256: string): Promise<void>;
  /** A sandbox of before a restart has it. */
  hold(tenant: string, sha256: string, user: string): void;
  release(user: string): Promise<void>;
}

/** The code packages, and what is installed for them, that sandboxes of agents have: a sandbox of one agent is a user of its own. */
export class AgentCode {
  readonly #places: PackagePlaces | null;
  readonly #layers: LayerPlaces | null;
  readonly #log: InstanceLog;
  /** The sandboxes of each agent that have some, or are about to, by their epochs. */
  readonly #epochs = new Map<string, Set<number>>();

  /** `places` null: there are no code packages. `layers` null: nothing is installed. */
  constructor(places: PackagePlaces | null, log: InstanceLog, layers: LayerPlaces | null = null) {
    this.#places = places;
    this.#layers = layers;
    this.#log = log;
  }

  /** The spec with its packages where they stand on this node, and what is installed for it; itself when it has neither. Undone by `undo`, or by `release` when its sandbox is gone. */
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

  /** Its row is written now: from here on none of its packages is removed. Fails as `place` does when one has been since. */
  async confirm({ tenant, mounts }: InstanceSpec): Promise<void> {
    for (const { source } of splitMounts(mounts).packages)
      await this.#places?.confirm(tenant, parseCodeUrl(source) ?? '');
  }

  /** Of before a restart: what its sandbox may have is not removed. */
  hold(ref: InstanceRef, { tenant, mounts, dependencies }: InstanceSpec): void {
    // What was installed for it knows itself who has it.
    if (dependencies === 'auto') this.#add(ref);
    for (const { source } of splitMounts(mounts).packages) {
      this.#add(ref);
      this.#places?.hold(tenant, parseCodeUrl(source) ?? '', userOf(ref));
    }
  }

  /** Its sandbox is gone, and so are those before it: whoever restarts an agent, or fails to, need not know which of them has code. */
  release({ id, epoch }: InstanceRef): void {
    for (const held of this.#epochs.get(id) ?? []) if (held <= epoch) void this.undo({ id, epoch: held });
  }

  /** This sandbox will not be, or is gone; the one before it may run, and keeps what it has. Resolves when all is given back; never rejects. */
  async undo(ref: InstanceRef): Promise<void> {
    const epochs = this.#epochs.get(ref.id);
    if (!epochs?.delete(ref.epoch)) return;
    if (epochs.size === 0) this.#epochs.delete(ref.id);
    const user = userOf(ref);
    try {
      await Promise.all([this.#places?.release(user), this.#layers?.release(user)]);
    } catch (error) {
      this.#log.warn({ instanceId: ref.id, err: error }, 'the code of an agent could not be given back');
    }
  }

  #add({ id, epoch }: InstanceRef): void {
    const epochs = this.#epochs.get(id) ?? new Set();
    this.#epochs.set(id, epochs.add(epoch));
  }
}

/** Each sandbox by itself: the next one of an agent has its code before the last one is gone. */
function userOf({ id, epoch }: InstanceRef): string {
  return `${id}.${epoch}`;
}
