import { failedPrecondition } from '../../core/error.ts';
import type { Cluster } from './cluster.ts';
import { missingRights } from './rights.ts';

const PROBE_MS = 5_000;
/** Resources without which no instance can run. */
const NEEDED: ReadonlySet<string> = new Set(['pods', 'secrets']);

/**
 * Checks that the API server answers and grants the driver's rights. `secret` is the Secret of the
 * installation. Fails with a `ServiceError` that names what is missing. Returns a sentence for each feature
 * that does not work.
 */
export async function probeCluster(cluster: Cluster, secret: string): Promise<readonly string[]> {
  const missing = await missingRights(cluster, secret, PROBE_MS);
  const fatal = missing.filter(({ resource }) => NEEDED.has(resource));
  if (fatal.length > 0) {
    throw failedPrecondition(
      `the account of the kubeconfig may not, in the namespace ${cluster.namespace}: ${fatal.map(({ verb, resource }) => `${verb} ${resource}`).join(', ')} (the Role of the chart allows it)`,
    );
  }
  return missing.map(({ verb, resource, without }) => `${without}: the account may not ${verb} ${resource}`);
}
