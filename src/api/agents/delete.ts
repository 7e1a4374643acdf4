import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { ServerTiming } from '../../lib/server-timing.ts';
import { stepFailed } from '../errors.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { AGENT_DOCS } from './docs.ts';
import { DELETE_QUERY } from './queries.ts';

export interface DeleteRouteOptions {
  readonly instances: Pick<AgentInstances, 'delete'>;
}

/** Adds `DELETE /api/agent/{instanceId}`. */
export function addDeleteRoute(app: FastifyInstance, { instances }: DeleteRouteOptions): void {
  app.delete<{ Params: { instanceId: string }; Querystring: Sent }>(
    '/api/agent/:instanceId',
    {
      bodyLimit: LIMITS.requestBodyBytes,
      config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.delete },
    },
    async ({ tenant, traceId, params, query }, reply) => {
      const stages = new ServerTiming(performance.now() - reply.elapsedTime);
      stages.end('http');
      const { grace } = readParameters(DELETE_QUERY, query);
      const graceMs = grace === null ? null : Math.round(grace * 1000);
      try {
        await instances.delete(tenant, params.instanceId, graceMs, stages);
      } catch (error) {
        throw stepFailed('failed to delete agent', error, traceId);
      }
      reply.header('Server-Timing', String(stages));
      return { code: 200, status: 'deleted' };
    },
  );
}
