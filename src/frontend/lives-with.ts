import { SERVICE_CODES } from '../core/codes.ts';
import { formatUrn, parseUrn } from '../core/urn.ts';
import type { Addressed, LivesWith } from '../http/lives-with.ts';

const param = (name: string) => (request: Addressed) => (request.params as Record<string, string>)[name] ?? null;

/** Routes after which something new runs: any replica that runs things. */
export const LIVES_WITH_WORKER: LivesWith = { thing: 'worker', keyOf: () => '' };

/** Routes of one agent. */
export const LIVES_WITH_AGENT: LivesWith = { thing: 'agent', keyOf: param('instanceId') };

/** Routes that change what runs of a job. */
export const LIVES_WITH_JOB: LivesWith = { thing: 'job', keyOf: param('id') };

/** Routes that read what it wrote, which is where it ran for longer than it runs. */
export const LIVES_WITH_JOB_LOG: LivesWith = { thing: 'job-log', keyOf: param('id') };

/** Routes that name an agent, or an instance of a function, in their query. */
export const LIVES_WITH_INSTANCE: LivesWith = {
  thing: 'instance',
  keyOf: ({ query }) => {
    const { instance } = query as { readonly instance?: unknown };
    return typeof instance === 'string' ? instance : null;
  },
};

/** Routes that show what runs of one function, or change it. */
export const LIVES_WITH_FUNCTION: LivesWith = {
  thing: 'function',
  keyOf: request => functionUrn(param('urn')(request) ?? ''),
  unreachable: SERVICE_CODES.unreachable.code,
};

/** Calls of functions with the short URL. */
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

/** URNs that were read before, as they were sent. Texts come from callers, so there is a bound. */
const known = new Map<string, string | null>();
const MAX_KNOWN = 10_000;

/** Without its version; null for what is no URN, which this replica then says. */
function functionUrn(sent: string): string | null {
  let urn = known.get(sent);
  if (urn !== undefined) return urn;
  const parsed = parseUrn(sent);
  urn = parsed === null ? null : formatUrn({ ...parsed, version: null });
  if (known.size >= MAX_KNOWN) known.clear();
  known.set(sent, urn);
  return urn;
}
