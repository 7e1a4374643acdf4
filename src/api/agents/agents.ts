import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { AgentInstances } from '../../agents/contract.ts';
import { EXEC, readExec } from '../../core/exec.ts';
import { AGENT_TTL, readTtl } from '../../core/lifetime.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { answerController } from '../../http/access/caller.ts';
import { withWarnings } from '../../http/answer.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import { ServerTiming } from '../../lib/server-timing.ts';
import { stepFailed } from '../errors.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { LogAnswers, readLogRequest, TEXT } from '../log-answer.ts';
import { type AddressDomain, addressUrl } from '../passthrough/address-targets.ts';
import { badQuery } from '../query.ts';
import { STATS, toStatsView } from '../stats-view.ts';
import { addAlarmRoutes } from './alarms.ts';
import { addCopyRoutes } from './copies.ts';
import { addCreateRoute, type CreateRouteOptions } from './create.ts';
import { AGENT_DOCS } from './docs.ts';
import { DELETE_QUERY, LIST_QUERY, PREVIOUS_QUERY } from './parameters.ts';
import { agentRecord, createdRecord, type RecordFor } from './record.ts';
import { addSleepRoutes } from './sleep.ts';
import { addUpdateRoute } from './update.ts';

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
  const recordFor: RecordFor = ({ headers }, instance) =>
    agentRecord(instance, addressUrl(instance.spec, options.addresses.domain, headers.host));

  addCreateRoute(app, options);

  app.get<ById>('/api/agent/:instanceId', { config: { access: 'read', docs: AGENT_DOCS.get } }, async request => {
    const instance = await instances.get(request.tenant, request.params.instanceId);
    return { code: 200, instance: recordFor(request, instance) };
  });

  app.get<{ Querystring: Sent }>('/api/agent', { config: { access: 'read', docs: AGENT_DOCS.list } }, async request => {
    const { label: labels, ...query } = readParameters(LIST_QUERY, request.query);
    const page = await instances.list({ tenant: request.tenant, labels, ...query });
    return {
      code: 200,
      instances: page.instances.map(instance => recordFor(request, instance)),
      next_cursor: page.nextCursor,
    };
  });

  addDeleteRoute(app, options);
  addLifetimeRoutes(app, options, recordFor);
  addSleepRoutes(app, instances, recordFor);
  addAlarmRoutes(app, instances.alarms);
  addUpdateRoute(app, options, recordFor);
  addCopyRoutes(app, options);

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

/** Adds the routes that change the time to live of an agent, and pause and resume it. */
function addLifetimeRoutes(app: FastifyInstance, { instances }: AgentRoutesOptions, recordFor: RecordFor): void {
  const config = { access: 'write', livesWith: LIVES_WITH_AGENT } as const;

  app.put<ById>('/api/agent/:instanceId/ttl', { config: { ...config, docs: AGENT_DOCS.setTtl } }, async request => {
    const change = readRequest(request, AGENT_TTL, readTtl);
    const instance = await instances.setExpiry(request.tenant, request.params.instanceId, change);
    return withWarnings({ code: 200, instance: recordFor(request, instance) }, request.warnings);
  });

  app.post<ById>('/api/agent/:instanceId/pause', { config: { ...config, docs: AGENT_DOCS.pause } }, async request => {
    const instance = await instances.pause(request.tenant, request.params.instanceId);
    return { code: 200, instance: recordFor(request, instance) };
  });

  app.post<ById>('/api/agent/:instanceId/resume', { config: { ...config, docs: AGENT_DOCS.resume } }, async request => {
    const { instance, resumed } = await instances.resume(request.tenant, request.params.instanceId);
    return { code: 200, resumed, instance: recordFor(request, instance) };
  });
}

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

/** Return code of a command that exceeded its time limit. No program returns -1. */
const TIMED_OUT = -1;

/**
 * Adds `POST /api/agent/{instanceId}/exec`, which runs a command in the sandbox.
 * The command is terminated when the client disconnects.
 */
export function addExecRoute(app: FastifyInstance, instances: AgentInstances): void {
  app.post<{ Params: { instanceId: string } }>(
    '/api/agent/:instanceId/exec',
    { config: { access: 'write', longLived: true, livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.exec } },
    async (request, reply) => {
      const sent = readRequest(request, EXEC, readExec);
      const command = {
        argv: sent.command,
        workingDir: sent.working_dir,
        env: sent.env,
        stdin: sent.stdin,
        timeoutMs: Math.ceil(sent.timeout * 1000),
        maxOutputBytes: LIMITS.execOutputBytes,
      };
      const { signal } = answerController(reply.raw);
      const { returncode, stdout, stderr, truncated } = await instances.exec(
        request.tenant,
        request.params.instanceId,
        command,
        signal,
      );
      const timedOut = returncode === TIMED_OUT;
      return withWarnings({ returncode, stdout, stderr, truncated, timed_out: timedOut }, request.warnings);
    },
  );
}

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

/** Refuses bounds of time and `follow` with `previous`: stored logs have no times and do not grow. */
function withoutMore(query: Sent): Sent {
  for (const name of ['since', 'until', 'follow']) {
    if (![undefined, '', 'false'].includes(query[name] as string | undefined)) {
      throw badQuery(name, 'absent beside previous', String(query[name]));
    }
  }
  return query;
}

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
