import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { Away, ServiceError, unauthenticated } from '../../core/error.ts';
import { DEFAULT_TENANT } from '../../core/tenant.ts';
import { type Access, checkAccess, type Identity, isRefusal, type Refusal } from '../../http/access/credentials.ts';
import { isBySandboxHost } from '../../http/access/sandbox-host.ts';
import { REFUSAL_STATUS, refusal } from '../../http/answer.ts';
import { forwardedOf } from '../../http/forwarding.ts';
import { drained } from '../../http/limits/drained.ts';
import type { OwnGate, Route } from '../../http/route-config.ts';
import { API_KEY_SHAPE, type ApiKeys, isApiKey } from '../../registry/api-keys.ts';

export interface KeyGateOptions {
  /** Keys of tenants. null: authentication is off, and every well-formed key is accepted. */
  readonly keys: Pick<ApiKeys, 'find'> | null;
}

/** The identity of every key when authentication is off. */
const TRUSTED = { tenant: DEFAULT_TENANT, role: 'developer' } as const;

/** Creates gates for routes that `X-API-Key` opens. No other credential counts there. */
export function keyGates(app: FastifyInstance, { keys }: KeyGateOptions) {
  const identify = async ({ headers }: IncomingMessage): Promise<Identity & { readonly tenant: string }> => {
    const { 'x-api-key': key } = headers;
    if (typeof key !== 'string' || key === '') throw unauthenticated('no API key was sent in the header X-API-Key');
    if (!isApiKey(key)) throw unauthenticated(`the API key is not valid: expected ${API_KEY_SHAPE}`);
    if (keys === null) return TRUSTED;
    const found = await keys.find(key);
    if (found === null) throw unauthenticated('the API key is not known: rookery token create --e2b makes one');
    return found;
  };

  return (route: Route & { readonly access: Access }): OwnGate =>
    async ({ raw }) => {
      const by = forwardedOf(raw);
      if (by !== undefined) return { tenant: by.tenant, role: by.role, untilMs: by.untilMs, route };
      const verdict = await app.gate(raw, { ...route, access: 'public', anyHost: isBySandboxHost(raw) });
      try {
        if (isRefusal(verdict)) return await afterBody(raw, verdict);
        const identity = await identify(raw);
        checkAccess(identity, route.access);
        return { ...identity, route };
      } catch (error) {
        if (error instanceof ServiceError) return await afterBody(raw, asRefusal(error));
        throw error;
      }
    };
}

async function afterBody(raw: IncomingMessage, answer: Refusal): Promise<Refusal> {
  await drained(raw);
  return answer;
}

function asRefusal(error: ServiceError): Refusal {
  const status = error instanceof Away ? 503 : (REFUSAL_STATUS[error.code] ?? 500);
  return { reason: error, ...refusal(status, error.message) };
}
