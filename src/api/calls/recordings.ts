import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import {
  type CallRecording,
  functionNameOf,
  RECORDING_PUT,
  readRecordingPut,
  targetOf,
} from '../../core/call-recording.ts';
import { failedPrecondition, invalidRequest } from '../../core/error.ts';
import { describeParameters, type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import { QUERIED_NAME_PATTERN } from '../../core/urn.ts';
import type { CallRecordings } from '../../history/call-recordings.ts';
import { withWarnings } from '../../http/answer.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { anyText, badQuery, parsed } from '../query.ts';

/** Null: the settings keep no history. */
export type RecordingStore = Pick<CallRecordings, 'put' | 'list' | 'remove'> | null;

const QUERY = {
  agent: anyText({ description: 'The `instance_id` of an agent.' }),
  function: parsed<string | undefined>(
    { type: 'string', pattern: QUERIED_NAME_PATTERN, description: 'A function: `<service>@<name>` or its URN.' },
    undefined,
    (text, name) => {
      if (functionNameOf(text) === undefined) throw badQuery(name, '<service>@<name>, or the URN of a function', text);
      return text;
    },
  ),
};

/** Adds the routes that record all calls of an agent or function for a time. */
export function addRecordingRoutes(app: FastifyInstance, recordings: RecordingStore): void {
  const store = () => {
    if (recordings !== null) return recordings;
    throw failedPrecondition('the service records no calls: its setting history.days is 0');
  };

  app.put('/api/recordings', { config: { access: 'write', noEnvironments: true, docs: DOCS.put } }, async request => {
    const { durationMs, ...target } = readRequest(request, RECORDING_PUT, readRecordingPut);
    const recording = shown(await store().put(request.tenant, target, durationMs));
    return withWarnings({ code: 200, recording }, request.warnings);
  });

  app.get(
    '/api/recordings',
    { config: { access: 'read', noEnvironments: true, docs: DOCS.list } },
    async ({ tenant }) => ({
      code: 200,
      recordings: recordings === null ? [] : (await store().list(tenant)).map(shown),
    }),
  );

  app.delete<{ Querystring: Sent }>(
    '/api/recordings',
    { config: { access: 'write', noEnvironments: true, docs: DOCS.delete } },
    async ({ tenant, query }) => {
      const { agent, function: name } = readParameters<ParametersOf<typeof QUERY>>(QUERY, query);
      if ((agent === undefined) === (name === undefined)) {
        throw invalidRequest('invalid query: either agent or function is required');
      }
      await store().remove(tenant, targetOf(agent, name));
      return { code: 200, status: 'deleted' };
    },
  );
}

function shown({ kind, target, startedAtMs, endsAtMs }: CallRecording) {
  return {
    kind,
    ...(kind === 'agent' ? { agent_id: target } : { function: target }),
    start_time: new Date(startedAtMs).toISOString(),
    end_time: new Date(endsAtMs).toISOString(),
  };
}

const tags = ['call'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const Recording = Type.Object(
  {
    kind: Type.Enum(['agent', 'function']),
    agent_id: Type.Optional(Type.String({ description: 'The `instance_id` of an agent.' })),
    function: Type.Optional(Type.String({ description: '`0@<service>@<name>`' })),
    start_time: Type.String({ format: 'date-time' }),
    end_time: Type.String({ format: 'date-time' }),
  },
  { title: 'CallRecording' },
);

const DOCS = {
  put: {
    tags,
    operationId: 'putCallRecording',
    summary: 'Record all calls of an agent or function for a time',
    description:
      'Keeps every call in the history, with up to 1 MiB of its input and of its output, whatever the rules of the history are. A second request changes the end.',
    body: RECORDING_PUT.describe(),
    response: {
      200: json('The recording.', Type.Object({ code: Type.Literal(200), recording: Recording })),
      404: errorDocs('The agent or function does not exist.'),
      409: errorDocs('The service records no calls.'),
      429: errorDocs('The tenant has as many recordings as it may.'),
    },
  },
  list: {
    tags,
    operationId: 'listCallRecordings',
    summary: 'List the recordings that have not ended',
    response: {
      200: json('All of the tenant.', Type.Object({ code: Type.Literal(200), recordings: Type.Array(Recording) })),
    },
  },
  delete: {
    tags,
    operationId: 'deleteCallRecording',
    summary: 'Stop a recording',
    querystring: describeParameters(QUERY),
    response: {
      200: json('It has ended.', Type.Object({ code: Type.Literal(200), status: Type.Literal('deleted') })),
      400: errorDocs('`invalid query: …`'),
      404: errorDocs('There is no such recording.'),
      409: errorDocs('The service records no calls.'),
    },
  },
} as const satisfies Record<string, RouteDocs>;
