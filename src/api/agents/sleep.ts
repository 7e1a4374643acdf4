import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { isAsleep } from '../../agents/refusals.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { answerController } from '../../http/access/caller.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { INVOKE_HEADERS, SLEEP_QUERY } from './parameters.ts';
import type { RecordFor } from './record.ts';
import { SLEEP_DOCS } from './sleep-docs.ts';

interface ById {
  Params: { instanceId: string };
}

/** Routes that start a sleeping agent, in addition to calls. */
const WAKING = /^\/api\/agent\/:instanceId\/(exec|files|processes)\b/;

/** Adds the routes that put an agent to sleep and wake it. */
export function addSleepRoutes(app: FastifyInstance, instances: AgentInstances, recordFor: RecordFor): void {
  const config = { access: 'write', livesWith: LIVES_WITH_AGENT } as const;

  app.post<ById & { Querystring: Sent }>(
    '/api/agent/:instanceId/sleep',
    { config: { ...config, longLived: true, docs: SLEEP_DOCS.sleep } },
    async (request, reply) => {
      const { wait, force } = readParameters(SLEEP_QUERY, request.query);
      const how = { waitMs: wait * 1000, isForced: force, signal: answerController(reply.raw).signal };
      const instance = await instances.sleep(request.tenant, request.params.instanceId, how);
      return { code: 200, instance: recordFor(request, instance) };
    },
  );

  app.post<ById>('/api/agent/:instanceId/wake', { config: { ...config, docs: SLEEP_DOCS.wake } }, async request => {
    const { instance, woken } = await instances.wake(request.tenant, request.params.instanceId);
    return { code: 200, woken, instance: recordFor(request, instance) };
  });
}

/**
 * Refuses requests with `X-Rookery-Wake: never` that would wake their agent, on all routes of `app` except
 * calls, which check the header themselves.
 */
export function addWakeBar(app: FastifyInstance, instances: Pick<AgentInstances, 'get'>): void {
  app.addHook<ById>('preHandler', async ({ headers, routeOptions, tenant, params: { instanceId } }) => {
    if (INVOKE_HEADERS.mayWake.read(headers) || !WAKING.test(routeOptions.url ?? '')) return;
    if ((await instances.get(tenant, instanceId)).status === 'SLEEPING') throw isAsleep(instanceId);
  });
}
