import { chmod, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { InstanceSpec } from '../core/instance.ts';
import { MEBIBYTE } from '../core/units.ts';
import type { Removals } from '../lib/removals.ts';
import { isAbsent } from '../lib/system-errors.ts';
import { diskUsage } from '../lib/tenant-disk.ts';

/**
 * Directories of durable agents that survive their sandboxes: `<directory>/<first two hex digits>/<id>`. A
 * directory is made at the first start and removed with the agent.
 */
export class AgentFiles {
  readonly #directory: string;
  readonly #removals: Pick<Removals, 'remove'>;

  constructor(directory: string, removals: Pick<Removals, 'remove'>) {
    this.#directory = directory;
    this.#removals = removals;
  }

  /** Makes the agent's directory. Returns the spec with its mount; the same object if the agent has none. */
  async place(id: string, spec: InstanceSpec): Promise<InstanceSpec> {
    const { files } = spec.durable ?? {};
    if (files === undefined) return spec;
    const source = this.#of(id);
    // Others cannot reach it: its parent belongs to the service alone. The sandbox has a user of its own.
    await mkdir(join(source, '..'), { recursive: true, mode: 0o700 });
    const isNew = (await mkdir(source, { recursive: true })) !== undefined;
    if (isNew) await chmod(source, 0o777);
    const mount = { source, target: files.path, readonly: false };
    return { ...spec, platformMounts: [...(spec.platformMounts ?? []), mount] };
  }

  /** Returns why the directory is too large, as `awake_because` says it; undefined: it is not. */
  async excess(id: string, spec: Pick<InstanceSpec, 'durable'>): Promise<string | undefined> {
    const { files } = spec.durable ?? {};
    if (files === undefined) return undefined;
    const usedMb = Math.ceil((await diskUsage(this.#of(id))) / MEBIBYTE);
    return usedMb > files.maxMb ? `files ${usedMb} of ${files.maxMb} MB` : undefined;
  }

  /** Removes the directory of a deleted agent. Never rejects. */
  async remove(id: string): Promise<void> {
    await this.#removals.remove(this.#of(id));
  }

  /**
   * Removes the directories of unknown agents, whose delete was interrupted. `known` returns which of these
   * ids belong to agents.
   */
  async sweep(known: (ids: readonly string[]) => Promise<ReadonlySet<string>>): Promise<void> {
    for (const start of await namesIn(this.#directory)) {
      const ids = await namesIn(join(this.#directory, start));
      const agents = await known(ids);
      for (const id of ids) if (!agents.has(id)) await this.remove(id);
    }
  }

  #of(id: string): string {
    return join(this.#directory, id.slice(0, 2), id);
  }
}

async function namesIn(directory: string): Promise<readonly string[]> {
  return await readdir(directory).catch((error: unknown) => {
    if (!isAbsent(error)) throw error;
    return [];
  });
}
