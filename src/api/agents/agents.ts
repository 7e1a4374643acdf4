import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import type { Instance } from '../../core/instance.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { stepFailed } from '../errors.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { type AddressDomain, addressUrl } from '../passthrough/address-targets.ts';
import { addCreateRoute, type CreateRouteOptions } from './create.ts';
import { addDeleteRoute } from './delete.ts';
import { AGENT_DOCS } from './docs.ts';
import { LIST_QUERY } from './queries.ts';
import { agentRecord, createdRecord } from './record.ts';

export interface AgentRoutesOptions extends CreateRouteOptions {
  readonly instances: AgentInstances;
  readonly addresses: { readonly domain: AddressDomain };
}

interface ById {
  Params: { instanceId: string };
  Querystring: Sent;
}

/** Adds the routes that create, get, list, delete and restart agent instances. */
export function addAgentRoutes(app: FastifyInstance, options: AgentRoutesOptions): void {
  const { instances } = options;
  const recordFor = ({ headers }: FastifyRequest, instance: Instance) =>
    agentRecord(instance, addressUrl(instance.spec, options.addresses.domain, headers.host));

  addCreateRoute(app, options);

  app.get<ById>('/api/agent/:instanceId', { config: { access: 'read', docs: AGENT_DOCS.get } }, async request => {
    const instance = await instances.get(request.tenant, request.params.instanceId);
    return { code: 200, instance: recordFor(request, instance) };
  });

  app.get<{ Querystring: Sent }>('/api/agent', { config: { access: 'read', docs: AGENT_DOCS.list } }, async request => {
    const page = await instances.list({ tenant: request.tenant, ...readParameters(LIST_QUERY, request.query) });
    return {
      code: 200,
      instances: page.instances.map(instance => recordFor(request, instance)),
      next_cursor: page.nextCursor,
    };
  });

  addDeleteRoute(app, options);

  app.post<ById>(
    '/api/agent/:instanceId/restart',
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.restart } },
    async request => {
      try {
        return createdRecord(await instances.restart(request.tenant, request.params.instanceId));
      } catch (error) {
        throw stepFailed('failed to restart agent', error, request.traceId);
      }
    },
  );
}
