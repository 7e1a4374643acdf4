import type { FastifyInstance } from 'fastify';
import { SERVICE_CODES, USER_CODES } from '../../core/codes.ts';
import { notFound } from '../../core/error.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { asyncAnswerJson } from '../../functions/async-answer.ts';
import { JSON_TYPE, withWarnings } from '../../http/answer.ts';
import { LIVES_WITH_FUNCTION } from '../lives-with.ts';
import { LogAnswers, readLogRequest } from '../log-answer.ts';
import { toStatsView } from '../stats-view.ts';
import { FUNCTION_DOCS, INSTANCE_QUERY } from './docs.ts';
import { functionFailure, sendFunctionFailure } from './errors.ts';
import { addFunctionInvokeRoutes, type FunctionRoutesOptions, readUrn } from './invoke.ts';

type OfSession = { Params: { urn: string; sessionId: string } };

/** Adds operation 12 of the specification: calls, asynchronous results, sessions, and instances. */
export function addFunctionRoutes(app: FastifyInstance, options: FunctionRoutesOptions): void {
  const { functions, asyncCalls, ownTenantOnly } = options;
  answerFailures(app);
  addFunctionInvokeRoutes(app, options);

  app.get<{ Params: { id: string } }>(
    '/serverless/v1/functions/async-results/:id',
    { config: { access: 'read', noEnvironments: true, docs: FUNCTION_DOCS.asyncResult } },
    async (request, reply) => {
      const answer = await asyncCalls.get(ownTenantOnly ? request.tenant : null, request.params.id);
      return await reply.type(JSON_TYPE).send(asyncAnswerJson(answer));
    },
  );

  app.delete<OfSession>(
    '/serverless/v1/functions/:urn/sessions/:sessionId',
    { config: { access: 'invoke', livesWith: LIVES_WITH_FUNCTION, docs: FUNCTION_DOCS.endSession } },
    async request => {
      const { urn, sessionId } = request.params;
      const tenant = ownTenantOnly ? request.tenant : null;
      if (!(await functions.endSession(readUrn(urn), tenant, sessionId))) throw unknownSession(sessionId);
      return { message: 'Deleted Success' };
    },
  );

  app.post<OfSession>(
    '/serverless/v1/functions/:urn/sessions/:sessionId/interrupt',
    { config: { access: 'invoke', livesWith: LIVES_WITH_FUNCTION, docs: FUNCTION_DOCS.interruptSession } },
    async request => {
      const { urn, sessionId } = request.params;
      const tenant = ownTenantOnly ? request.tenant : null;
      if (!(await functions.interruptSession(readUrn(urn), tenant, sessionId))) throw unknownSession(sessionId);
      return { message: 'Interrupted Success' };
    },
  );
  addReadRoutes(app, options);
}

/** Adds the routes for instances, their resource usage, and logs. */
function addReadRoutes(app: FastifyInstance, { functions, ownTenantOnly }: FunctionRoutesOptions): void {
  app.get<{ Params: { urn: string } }>(
    '/serverless/v1/functions/:urn/instances',
    { config: { access: 'read', livesWith: LIVES_WITH_FUNCTION, docs: FUNCTION_DOCS.instances } },
    async request => {
      const urn = readUrn(request.params.urn);
      const fn = await functions.check(urn, ownTenantOnly ? request.tenant : null);
      const instances = functions.instances(fn.urn).map(({ instance, state, inFlight }) => ({
        instance_id: instance.id,
        status: state,
        running_calls: inFlight,
        label: instance.key.label,
        cpu: instance.key.cpuMillis,
        memory: instance.key.memoryMb,
        start_time: new Date(instance.startedAtMs).toISOString(),
      }));
      const { waitingCalls, startFailures } = functions.shortage(fn.urn);
      return withWarnings({ instances, waiting_calls: waitingCalls }, startFailures);
    },
  );

  app.get<{ Params: { urn: string } }>(
    '/serverless/v1/functions/:urn/stats',
    { config: { access: 'read', livesWith: LIVES_WITH_FUNCTION, docs: FUNCTION_DOCS.stats } },
    async request => {
      const used = await functions.stats(readUrn(request.params.urn), ownTenantOnly ? request.tenant : null);
      return { instances: used.map(({ id, ...stats }) => ({ instance_id: id, ...toStatsView(stats) })) };
    },
  );

  const logAnswers = new LogAnswers(app);
  app.get<{ Params: { urn: string }; Querystring: Sent }>(
    '/serverless/v1/functions/:urn/logs',
    {
      config: {
        access: 'read',
        longLived: true,
        costly: 'log',
        livesWith: LIVES_WITH_FUNCTION,
        docs: FUNCTION_DOCS.logs,
      },
    },
    async (request, reply) => {
      const urn = readUrn(request.params.urn);
      const tenant = ownTenantOnly ? request.tenant : null;
      const wanted = {
        ...readLogRequest(request.query),
        instanceId: readParameters(INSTANCE_QUERY, request.query).instance ?? null,
      };
      if (request.method === 'HEAD') {
        await functions.check(urn, tenant);
        return logAnswers.sendEmpty(reply);
      }
      return await logAnswers.send(request, reply, wanted, signal => functions.logs(urn, tenant, wanted, signal));
    },
  );
}

/** Answers errors of these routes in the form of call answers. */
function answerFailures(app: FastifyInstance): void {
  app.setErrorHandler((error, request, reply) => {
    const status = (error as { statusCode?: number }).statusCode;
    if (status === 413) {
      // Reads and discards the body, so that the client can read the answer before the connection closes.
      reply.removeHeader('connection');
      request.raw.resume();
      const limit = request.routeOptions.bodyLimit;
      sendFunctionFailure(reply, {
        status: 413,
        code: USER_CODES.bodyTooLarge.code,
        message: `the request body is larger than ${limit} bytes`,
      });
    } else if (status !== undefined && status < 500) {
      sendFunctionFailure(reply, {
        status: 400,
        code: SERVICE_CODES.badCall.code,
        message: `invalid request: ${(error as Error).message}`,
      });
    } else sendFunctionFailure(reply, functionFailure(error, request.traceId));
  });
}

function unknownSession(id: string) {
  return notFound(`no session has the id ${id}`, { number: SERVICE_CODES.unknownId.code });
}
