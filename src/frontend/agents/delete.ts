import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import type { Exchange } from '../../http/exchange.ts';
import { addHotRoute } from '../../http/hot-route.ts';
import type { CpuLatency } from '../../lib/cpu-latency.ts';
import { Stages } from '../../lib/stages.ts';
import { refuseExchange, stepFailed } from '../errors.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { AGENT_DOCS } from './docs.ts';
import { DELETE_QUERY } from './queries.ts';

const DELETED = JSON.stringify({ code: 200, status: 'deleted' });

export interface DeleteRouteOptions {
  readonly instances: Pick<AgentInstances, 'delete'>;
  /** As of a create. */
  readonly cpuLatency?: Pick<CpuLatency, 'lower'> | null;
}

/** `DELETE /api/agent/{instanceId}`, the short way as a create. */
export function addDeleteRoute(app: FastifyInstance, { instances, cpuLatency }: DeleteRouteOptions): void {
  addHotRoute(app, {
    method: 'DELETE',
    url: '/api/agent/:instanceId',
    parameter: 'instanceId',
    bodyLimit: LIMITS.requestBodyBytes,
    config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.delete },
    handle: (exchange, instanceId, query) => {
      cpuLatency?.lower();
      deleteAgent(exchange, instanceId, query, instances).catch((error: unknown) => exchange.fault(error));
    },
    refuse: refuseExchange,
  });
}

async function deleteAgent(
  exchange: Exchange,
  instanceId: string,
  query: Sent,
  instances: DeleteRouteOptions['instances'],
): Promise<void> {
  const stages = new Stages(exchange.startMs);
  stages.over('http');
  try {
    const { grace } = readParameters(DELETE_QUERY, query);
    const graceMs = grace === null ? null : Math.round(grace * 1000);
    try {
      await instances.delete(exchange.tenant, instanceId, graceMs, stages);
    } catch (error) {
      throw stepFailed('failed to delete agent', error, exchange.traceId);
    }
    exchange.answer(200, DELETED, ['Server-Timing', String(stages)]);
  } catch (error) {
    refuseExchange(exchange, error);
  }
}
