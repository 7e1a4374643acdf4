import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { LogAnswers, readLogRequest } from '../log-answer.ts';
import type { Query } from '../query.ts';
import { AGENT_DOCS } from './docs.ts';

/**
 * `GET /api/agent/{instanceId}/logs`: what the user's code wrote, as text. With `follow` it goes on until the sandbox ends, the
 * caller leaves or the server closes.
 */
export function addLogsRoute(app: FastifyInstance, instances: AgentInstances): void {
  const answers = new LogAnswers(app);

  app.get<{ Params: { instanceId: string }; Querystring: Query }>(
    '/api/agent/:instanceId/logs',
    { config: { access: 'read', longLived: true, costly: 'scan', docs: AGENT_DOCS.logs } },
    async (request, reply) => {
      const wanted = readLogRequest(request.query);
      const { tenant, params } = request;
      if (request.method === 'HEAD') {
        await instances.get(tenant, params.instanceId);
        return answers.sendEmpty(reply);
      }
      return await answers.send(request, reply, wanted, signal =>
        instances.logs(tenant, params.instanceId, wanted, signal),
      );
    },
  );
}
