import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Environment } from '../../core/environment.ts';
import { removeContainer } from './container-requests.ts';
import { Engine, LABEL_INSTANCE } from './engine.ts';
import { INSIDE_DIRECTORY } from './sandbox-directory.ts';

/** Container of Rookery, of any data directory. */
export interface MachineContainer {
  readonly id: string;
  readonly instanceId: string;
  /** True when the data directory of its service, with which it shares a directory, no longer exists. */
  readonly isLost: boolean;
  remove(): Promise<void>;
}

/**
 * Returns all containers of Rookery that the local daemon has; empty without a daemon. `close` ends the
 * connection.
 */
export async function findContainers(
  host: string | null,
  environment: Environment,
): Promise<{ readonly containers: readonly MachineContainer[]; close(): void }> {
  const engine = await Engine.open(host, environment).catch(() => null);
  // A daemon at a TCP address may have containers of other machines, whose directories are not on this one.
  if (engine === null || !('socketPath' in engine.endpoint.connection)) {
    engine?.close();
    return { containers: [], close: () => undefined };
  }
  const filters = { label: [LABEL_INSTANCE] };
  const listed = await engine
    .request('list containers', docker => docker.listContainers({ all: true, filters }))
    .catch(() => []);
  return {
    containers: listed.map(({ Id: id, Labels: labels, Mounts: mounts }) => {
      const shared = mounts.find(({ Destination }) => Destination === INSIDE_DIRECTORY)?.Source;
      return {
        id,
        instanceId: labels[LABEL_INSTANCE] ?? '',
        isLost: shared !== undefined && !existsSync(dataDirOf(shared)),
        remove: () => removeContainer(engine, id),
      };
    }),
    close: () => engine.close(),
  };
}

/** Returns `<data directory>` of `<data directory>/run/docker/<id>/shared`. */
function dataDirOf(shared: string): string {
  return join(shared, '../../../..');
}
