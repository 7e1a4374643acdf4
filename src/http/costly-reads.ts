import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { resourceExhausted } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { CostlyRead } from './route-config.ts';

/** Counts the open reads of one kind. */
class Slots {
  readonly #bounds: { readonly perTenant: number; readonly inAll: number };
  readonly #ofTenant = new Map<string, number>();
  #open = 0;

  constructor(bounds: { readonly perTenant: number; readonly inAll: number }) {
    this.#bounds = bounds;
  }

  /** Takes a slot and returns the function that gives it back; null when there is none. */
  take(tenant: string): (() => void) | null {
    const ofTenant = this.#ofTenant.get(tenant) ?? 0;
    if (this.#open >= this.#bounds.inAll || ofTenant >= this.#bounds.perTenant) return null;
    this.#open += 1;
    this.#ofTenant.set(tenant, ofTenant + 1);
    return () => {
      this.#open -= 1;
      const left = (this.#ofTenant.get(tenant) ?? 1) - 1;
      if (left > 0) this.#ofTenant.set(tenant, left);
      else this.#ofTenant.delete(tenant);
    };
  }
}

/**
 * Bounds how many reads of routes with `costly` are open at a time, for each tenant and in all, whatever the role. Above a bound the
 * answer is 429 with `Retry-After`.
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
  // Routes that cost little pay nothing for it.
  app.addHook('onRoute', route => {
    if (route.config?.costly !== undefined) route.preValidation = [bound, route.preValidation ?? []].flat();
  });
}

/** As the routes of logs read their query: whatever is not `true` there follows nothing. */
function kindOf({ route: { costly = 'scan' }, query }: FastifyRequest): Exclude<CostlyRead, 'log'> {
  if (costly !== 'log') return costly;
  return (query as { readonly follow?: unknown }).follow === 'true' ? 'follow' : 'scan';
}

function endOf({ raw, ws }: FastifyRequest & { readonly ws?: boolean }, reply: FastifyReply, onEnd: () => void): void {
  const ending = ws === true ? raw.socket : reply.raw;
  if (ending.destroyed) onEnd();
  else ending.once('close', onEnd);
}
