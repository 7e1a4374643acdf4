import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Served, type ServeOptions } from '../../scripts/served.ts';
import { freePort } from './free-port.ts';

/**
 * Several replicas of the built program over one PostgreSQL, each with its own data directory and a common
 * secret.
 */
export class ServedReplicas implements AsyncDisposable {
  readonly all: readonly Served[];
  readonly #directory: string;

  private constructor(all: readonly Served[], directory: string) {
    this.all = all;
    this.#directory = directory;
  }

  static async start(
    url: string,
    count: number,
    { args = [], env: more = {} }: Pick<ServeOptions, 'args' | 'env'> = {},
  ): Promise<ServedReplicas> {
    const directory = mkdtempSync(join(tmpdir(), 'rookery-replicas-'));
    const secretFile = join(directory, 'secret');
    writeFileSync(secretFile, randomBytes(32).toString('hex'), { mode: 0o600 });
    const all: Served[] = [];
    const replicas = new ServedReplicas(all, directory);
    try {
      for (let index = 0; index < count; index += 1) {
        const listen = `127.0.0.1:${await freePort()}`;
        const env = {
          ROOKERY_STORAGE_URL: url,
          ROOKERY_CLUSTER_SECRET_FILE: secretFile,
          ROOKERY_CLUSTER_LISTEN: listen,
          ...more,
        };
        all.push(await Served.start({ args, env }));
      }
      return replicas;
    } catch (error) {
      await replicas[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const replica of this.all) await replica.remove();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** Returns the id of a replica, whether it is a member, and the number of members that it sees. */
export async function nodesSeenBy({ frontendUrl }: Served) {
  const answer = await fetch(`${frontendUrl}/api/cluster`);
  const found = (await answer.json()) as { node_id: string; is_member: boolean; nodes: readonly unknown[] };
  return { id: found.node_id, isMember: found.is_member, count: found.nodes.length };
}
