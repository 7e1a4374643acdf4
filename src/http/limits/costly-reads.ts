import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { resourceExhausted } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { Counter } from '../../lib/counter.ts';
import type { CostlyRead } from '../route-config.ts';

/** Counts the open reads of a kind. */
class Slots {
  readonly #bounds: { readonly perTenant: number; readonly inAll: number };
  readonly #ofTenant = new Counter();
  #open = 0;

  constructor(bounds: { readonly perTenant: number; readonly inAll: number }) {
    this.#bounds = bounds;
  }

  /** Acquires a slot and returns the function that releases it. Returns null if there is no free slot. */
  take(tenant: string): (() => void) | null {
    if (this.#open >= this.#bounds.inAll || this.#ofTenant.get(tenant) >= this.#bounds.perTenant) return null;
    this.#open += 1;
    this.#ofTenant.add(tenant);
    return () => {
      this.#open -= 1;
      this.#ofTenant.add(tenant, -1);
    };
  }
}

/**
 * Bounds the number of open reads of routes with `costly`, per tenant and in total, for every role.
 * Further reads are answered with 429 and `Retry-After`.
 */
export function boundCostlyReads(app: FastifyInstance): void {
  const slots: Readonly<Record<Exclude<CostlyRead, 'log'>, Slots>> = {
    scan: new Slots(LIMITS.openScans),
    follow: new Slots(LIMITS.openFollowers),
  };
  const bound = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => {
    const kind = kindOf(request);
    const giveBack = slots[kind].take(request.tenant);
    if (giveBack === null) {
      const text = kind === 'scan' ? 'too many lists and logs are being read' : 'too many logs are being followed';
      done(resourceExhausted(`${text}, try again later`, { retryAfterSeconds: 1 }));
      return;
    }
    endOf(request, reply, giveBack);
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
