import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { resourceExhausted } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { TenantBudget } from '../../lib/budgets.ts';
import type { CostlyRead } from '../route-config.ts';

/**
 * Bounds the number of open reads of routes with `costly`, per tenant and in total, for every role.
 * Further reads are answered with 429 and `Retry-After`.
 */
export function boundCostlyReads(app: FastifyInstance): void {
  const slots: Readonly<Record<Exclude<CostlyRead, 'log'>, TenantBudget>> = {
    scan: new TenantBudget(LIMITS.openScans.inAll, LIMITS.openScans.perTenant),
    follow: new TenantBudget(LIMITS.openFollowers.inAll, LIMITS.openFollowers.perTenant),
  };
  const bound = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => {
    const kind = kindOf(request);
    const { tenant } = request;
    const budget = slots[kind];
    if (!budget.fits(tenant, 1)) {
      const text = kind === 'scan' ? 'too many lists and logs are being read' : 'too many logs are being followed';
      done(resourceExhausted(`${text}, try again later`, { retryAfterSeconds: 1 }));
      return;
    }
    budget.acquire(tenant, 1);
    endOf(request, reply, () => budget.release(tenant, 1));
    done();
  };
  // The check is added per route, so that other routes pay nothing.
  app.addHook('onRoute', route => {
    if (route.config?.costly !== undefined) route.preValidation = [bound, route.preValidation ?? []].flat();
  });
}

/** Returns the kind of a read. Only `follow=true` follows, as in the routes of logs. */
function kindOf({ route: { costly = 'scan' }, query }: FastifyRequest): Exclude<CostlyRead, 'log'> {
  if (costly !== 'log') return costly;
  return (query as { readonly follow?: unknown }).follow === 'true' ? 'follow' : 'scan';
}

function endOf({ raw, ws }: FastifyRequest & { readonly ws?: boolean }, reply: FastifyReply, onEnd: () => void): void {
  const ending = ws === true ? raw.socket : reply.raw;
  if (ending.destroyed) onEnd();
  else ending.once('close', onEnd);
}
