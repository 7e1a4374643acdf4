import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { LogAnswers, readLogRequest, TEXT } from '../log-answer.ts';
import { badQuery } from '../query.ts';
import { AGENT_DOCS } from './docs.ts';
import { PREVIOUS_QUERY } from './queries.ts';

/**
 * Adds `GET /api/agent/{instanceId}/logs`, which returns the output of user code as text.
 * With `follow` the answer continues until the sandbox ends, the client disconnects or the server closes.
 */
export function addLogsRoute(app: FastifyInstance, instances: AgentInstances): void {
  const answers = new LogAnswers(app);

  app.get<{ Params: { instanceId: string }; Querystring: Sent }>(
    '/api/agent/:instanceId/logs',
    { config: { access: 'read', longLived: true, costly: 'log', livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.logs } },
    async (request, reply) => {
      const { tenant, params } = request;
      const { previous } = readParameters(PREVIOUS_QUERY, request.query);
      if (previous !== null) {
        const { tail } = readLogRequest(withoutMore(request.query));
        return reply.type(TEXT).send(await instances.previousLog(tenant, params.instanceId, previous, tail));
      }
      const wanted = readLogRequest(request.query);
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

/** Refuses `since` and `follow` with `previous`, because stored logs have no times and do not grow. */
function withoutMore(query: Sent): Sent {
  for (const name of ['since', 'follow']) {
    if (![undefined, '', 'false'].includes(query[name] as string | undefined)) {
      throw badQuery(name, 'absent beside previous', String(query[name]));
    }
  }
  return query;
}
