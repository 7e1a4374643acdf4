import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { AgentInstances } from '../../agents/contract.ts';
import { errorDocs } from '../../http/docs.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { STATS, toStatsView } from '../stats-view.ts';

const Stats = Type.Object(STATS, { title: 'AgentStats' });

/** Adds `GET /api/agent/{instanceId}/stats`, which returns the current resource usage of the sandbox. */
export function addStatsRoute(app: FastifyInstance, instances: AgentInstances): void {
  app.get<{ Params: { instanceId: string } }>(
    '/api/agent/:instanceId/stats',
    {
      config: {
        access: 'read',
        livesWith: LIVES_WITH_AGENT,
        noEnvironments: true,
        docs: {
          tags: ['agent'],
          operationId: 'agentStats',
          summary: 'What an agent uses at this moment',
          params: Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) }),
          response: {
            200: { description: 'It.', content: { 'application/json': { schema: Stats } } },
            404: errorDocs('`instance not found: <id>`'),
            409: errorDocs('It does not run.'),
            503: errorDocs('What runs the sandbox does not answer.'),
          },
        },
      },
    },
    async ({ tenant, params }) => toStatsView(await instances.stats(tenant, params.instanceId)),
  );
}
