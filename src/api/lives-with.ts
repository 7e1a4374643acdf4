import { SERVICE_CODES } from '../core/codes.ts';
import { formatUrn, parseUrn } from '../core/urn.ts';
import type { Addressed, LivesWith } from '../http/route-config.ts';

const param = (name: string) => (request: Addressed) => (request.params as Record<string, string>)[name] ?? null;

/** Routes that start something new, on any worker replica. */
export const LIVES_WITH_WORKER: LivesWith = { thing: 'worker', keyOf: () => '' };

/** Routes of an agent. */
export const LIVES_WITH_AGENT: LivesWith = { thing: 'agent', keyOf: param('instanceId') };

/** Routes that change a running job. */
export const LIVES_WITH_JOB: LivesWith = { thing: 'job', keyOf: param('id') };

/** Routes that read a job's log, which stays on the replica that ran the job. */
export const LIVES_WITH_JOB_LOG: LivesWith = { thing: 'job-log', keyOf: param('id') };

/** Routes whose query names an agent or a function instance. */
export const LIVES_WITH_INSTANCE: LivesWith = {
  thing: 'instance',
  keyOf: ({ query }) => {
    const { instance } = query as { readonly instance?: unknown };
    return typeof instance === 'string' ? instance : null;
  },
};

/** Routes that show or change the running instances of a function. */
export const LIVES_WITH_FUNCTION: LivesWith = {
  thing: 'function',
  keyOf: request => functionUrn(param('urn')(request) ?? ''),
  unreachable: SERVICE_CODES.unreachable.code,
};

/** Returns the placement of function calls with the short URL. */
export function callsFunctionOf(business: string): LivesWith {
  return {
    ...LIVES_WITH_FUNCTION,
    keyOf: request => {
      const { tenant, service, function: named } = request.params as Record<string, string>;
      const [name] = (named ?? '').split(':');
      return functionUrn(`sn:cn:${business}:${tenant}:function:0@${service}@${name}`);
    },
  };
}

/** Caches parsed URNs by their text. Clients choose the texts, so the cache has a limit. */
const known = new Map<string, string | null>();
const MAX_KNOWN = 10_000;

/** Removes the version from a URN. Returns null for an invalid URN, which this replica then reports. */
function functionUrn(sent: string): string | null {
  let urn = known.get(sent);
  if (urn !== undefined) return urn;
  const parsed = parseUrn(sent);
  urn = parsed === null ? null : formatUrn({ ...parsed, version: null });
  if (known.size >= MAX_KNOWN) known.clear();
  known.set(sent, urn);
  return urn;
}
