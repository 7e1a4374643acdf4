import { failedPrecondition } from '../../core/error.ts';
import type { Cluster } from './cluster.ts';
import { missingRights } from './rights.ts';

const PROBE_MS = 5_000;
/** Without rights to these nothing works at all. */
const NEEDED: ReadonlySet<string> = new Set(['pods', 'secrets']);

/**
 * Whether the API server answers and lets the driver do what it does. Fails with a `ServiceError` that says what is missing; else what does
 * not work, as sentences.
 */
export async function probeCluster(cluster: Cluster): Promise<readonly string[]> {
  const missing = await missingRights(cluster, PROBE_MS);
  const fatal = missing.filter(({ resource }) => NEEDED.has(resource));
  if (fatal.length > 0) {
    throw failedPrecondition(
      `the account of the kubeconfig may not, in the namespace ${cluster.namespace}: ${fatal.map(({ verb, resource }) => `${verb} ${resource}`).join(', ')} (the Role of the chart allows it)`,
    );
  }
  return missing.map(({ verb, resource, without }) => `${without}: the account may not ${verb} ${resource}`);
}
