import { Type } from 'typebox';
import { SERVICE_CODES, USER_CODES } from '../../core/codes.ts';
import { ANSWER_HEADERS, PLACEMENT_HEADERS } from '../../core/function-call.ts';
import { describeParameters } from '../../core/parameter.ts';
import { TENANT_PATTERN } from '../../core/tenant.ts';
import { Warnings } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { LOG_QUERY } from '../log-answer.ts';
import { anyText } from '../query.ts';
import { STATS } from '../stats-view.ts';

const tags = ['function service'];
/** The query that selects an instance's log, in addition to `LOG_QUERY`. */
export const INSTANCE_QUERY = { instance: anyText({ description: 'The id of one instance.' }) };
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const Failure = Type.Object({
  code: Type.Integer(),
  message: Type.String(),
  trace_id: Type.Optional(Type.String()),
});
const failed = (description: string) => json(description, Failure);
const NAME = '[A-Za-z0-9][A-Za-z0-9_-]{0,63}';
const VERSION = '(\\$latest|[A-Za-z0-9]([A-Za-z0-9._-]{0,40}[A-Za-z0-9])?)';
const Urn = Type.String({
  pattern: `^sn:cn:${NAME}:${TENANT_PATTERN}:function:0@[A-Za-z0-9]{1,16}@[a-z0-9-]{1,127}:${VERSION}$`,
  description: 'A functionVersionUrn.',
});
const byUrn = Type.Object({ urn: Urn });
const ofSession = Type.Object({ urn: Urn, sessionId: Type.String() });
const lookups = {
  400: failed(`Not a functionVersionUrn (${SERVICE_CODES.badCall.code}).`),
  404: failed(`Unknown function (${SERVICE_CODES.unknownFunction.code}) or session (${SERVICE_CODES.unknownId.code}).`),
};
const event = Type.Unknown({ description: 'The event: any JSON; empty is {}.' });

const headers = describeParameters({ ...ANSWER_HEADERS, ...PLACEMENT_HEADERS });

const calls = {
  200: {
    description: 'The value of the handler; with `Accept: text/event-stream` as events.',
    content: {
      'application/json': { schema: Type.Unknown() },
      'text/event-stream': { schema: Type.String() },
    },
  },
  202: json('Taken for later.', Type.Object({ requestId: Type.String() })),
  ...lookups,
  413: failed(`The body is too large (${USER_CODES.bodyTooLarge.code}).`),
  429: failed(`The queue is full (${SERVICE_CODES.queueFull.code}, ${SERVICE_CODES.machineFull.code}).`),
  500: failed(
    `The code of the function failed (${USER_CODES.loadFailed.code}, ${USER_CODES.handlerFailed.code}, ${USER_CODES.resultTooLarge.code}, ${USER_CODES.resultNotJson.code}, ${USER_CODES.initializerFailed.code}, ${USER_CODES.initializerTimedOut.code}), or its instance (${SERVICE_CODES.instanceEnded.code}, ${SERVICE_CODES.startFailed.code}).`,
  ),
  503: failed(
    `Waited too long for an instance (${SERVICE_CODES.waitedTooLong.code}), or a part that it needs does not work now (${SERVICE_CODES.startFailed.code}).`,
  ),
  504: failed(`The handler timed out (${USER_CODES.timedOut.code}).`),
};

/** The OpenAPI documentation of the function service. */
export const FUNCTION_DOCS = {
  invoke: {
    tags,
    operationId: 'invokeFunction',
    summary: 'Invoke a version of a function',
    params: byUrn,
    headers,
    body: event,
    response: calls,
  },
  invokeShort: {
    tags,
    operationId: 'invokeFunctionShort',
    summary: 'Invoke a function by its names; `function` may end with `:<version>`',
    params: Type.Object({
      tenant: Type.String({ pattern: `^${TENANT_PATTERN}$` }),
      service: Type.String({ pattern: '^[A-Za-z0-9]{1,16}$' }),
      function: Type.String({ pattern: `^[a-z0-9-]{1,127}(:${VERSION})?$` }),
    }),
    headers,
    body: event,
    response: calls,
  },
  asyncResult: {
    tags,
    operationId: 'getAsyncResult',
    summary: 'What became of an asynchronous call',
    params: Type.Object({ id: Type.String() }),
    response: {
      200: json(
        'The call.',
        Type.Object({
          requestId: Type.String(),
          status: Type.Enum(['queued', 'processing', 'completed', 'failed']),
          result: Type.Optional(Type.Unknown()),
          error: Type.Optional(Type.Object({ code: Type.Integer(), message: Type.String() })),
          createdAt: Type.String(),
          completedAt: Type.Optional(Type.String()),
        }),
      ),
      404: failed(`Unknown id (${SERVICE_CODES.unknownId.code}).`),
    },
  },
  endSession: {
    tags,
    operationId: 'endSession',
    summary: 'End a session: its slots are free again',
    params: ofSession,
    response: { 200: json('It ended.', Type.Object({ message: Type.String() })), ...lookups },
  },
  interruptSession: {
    tags,
    operationId: 'interruptSession',
    summary: 'Raise an exception in the running calls of a session',
    params: ofSession,
    response: { 200: json('Done.', Type.Object({ message: Type.String() })), ...lookups },
  },
  instances: {
    tags,
    operationId: 'listFunctionInstances',
    summary: 'The instances that serve a version now',
    params: byUrn,
    response: {
      200: json(
        'The instances.',
        Type.Object({
          instances: Type.Array(
            Type.Object({
              instance_id: Type.String(),
              status: Type.String(),
              running_calls: Type.Integer(),
              label: Type.String(),
              cpu: Type.Integer(),
              memory: Type.Integer(),
              start_time: Type.String(),
            }),
          ),
          waiting_calls: Type.Integer({ description: 'The calls that wait for an instance.' }),
          warnings: Warnings,
        }),
      ),
      ...lookups,
    },
  },
  stats: {
    tags,
    operationId: 'functionStats',
    summary: 'What the instances of a version use at this moment',
    description: 'One that is ending is left out.',
    params: byUrn,
    response: {
      200: json(
        'They.',
        Type.Object({
          instances: Type.Array(
            Type.Object({ instance_id: Type.String(), ...STATS }, { title: 'FunctionInstanceStats' }),
          ),
        }),
      ),
      ...lookups,
    },
  },
  logs: {
    tags,
    operationId: 'readFunctionLogs',
    summary: 'What the code of a version wrote',
    description:
      'Of all instances that run now, with the beginning of the id of each one before its lines; of one with `instance`. What an instance wrote goes with it.',
    params: byUrn,
    querystring: describeParameters({ ...INSTANCE_QUERY, ...LOG_QUERY }),
    response: {
      200: { description: 'The lines.', content: { 'text/plain': { schema: Type.String() } } },
      400: failed(`Not a functionVersionUrn, or a bad query (${SERVICE_CODES.badCall.code}).`),
      404: failed(
        `Unknown function (${SERVICE_CODES.unknownFunction.code}) or instance (${SERVICE_CODES.unknownId.code}).`,
      ),
    },
  },
} as const satisfies Readonly<Record<string, RouteDocs>>;
