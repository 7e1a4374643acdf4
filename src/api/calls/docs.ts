import { Type } from 'typebox';
import { CALL_MODES } from '../../core/finished-call.ts';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { CALLS_QUERY } from './query.ts';

const FACTS = {
  id: Type.String({ description: 'The request id, which the handler sees as `request_id`.' }),
  kind: Type.Enum(['agent', 'function']),
  agent_id: Type.Optional(Type.String({ description: 'The `instance_id` of an agent.' })),
  name: Type.Optional(
    Type.String({ description: '`<namespace>/<name>` of an agent; empty when it was deleted early.' }),
  ),
  function: Type.Optional(Type.String({ description: '`0@<service>@<name>`' })),
  version: Type.Optional(Type.String()),
  instance_id: Type.String({ description: 'Empty when the call got no instance.' }),
  node_id: Type.String(),
  mode: Type.Enum([...CALL_MODES]),
  tenant: Type.String(),
  caller: Type.String({
    description:
      'The claim `name` of the token, else `jti`, or `alarm` and the name of the alarm; empty without either.',
  }),
  trace_id: Type.String(),
  parent_id: Type.Union([Type.String(), Type.Null()], {
    description:
      'The call whose handler made this one and passed its `traceparent` on; null when the history has none.',
  }),
  outcome: Type.Enum(['ok', 'error']),
  error_code: Type.Union([Type.String(), Type.Null()], {
    description: 'The number of a failure, or the word of a failure of the service, or `cancelled`.',
  }),
  error: Type.Optional(Type.String({ description: 'The text of a failure; viewers do not get it.' })),
  start_time: Type.String({ format: 'date-time' }),
  duration_ms: Type.Number(),
  queue_ms: Type.Number(),
  place_ms: Type.Number(),
  start_ms: Type.Number(),
  load_ms: Type.Number(),
  run_ms: Type.Number(),
  input_bytes: Type.Integer(),
  output_bytes: Type.Integer(),
};

const Call = Type.Object(FACTS, { title: 'Call' });

const Span = Type.Object(
  {
    name: Type.String(),
    parent: Type.Union([Type.Integer(), Type.Null()], {
      description: 'Position of the span that contains this one; null: none.',
    }),
    start_ms: Type.Number({ description: 'Since the handler started.' }),
    duration_ms: Type.Number(),
    outcome: Type.Enum(['ok', 'error']),
    attributes: Type.Optional(
      Type.Record(Type.String(), Type.Union([Type.String(), Type.Number(), Type.Boolean()]), {
        description: 'Not for viewers.',
      }),
    ),
    error: Type.Optional(Type.String({ description: 'The text of a failure; not for viewers.' })),
  },
  { title: 'CallSpan' },
);

const CallDetails = Type.Object(
  {
    ...FACTS,
    spans: Type.Array(Span, { description: "Spans of the handler's code." }),
    dropped_spans: Type.Integer({ description: 'Spans and attributes above a limit.' }),
    input: Type.Optional(Type.String({ description: 'Its beginning, with hidden values replaced; not for viewers.' })),
    output: Type.Optional(Type.Union([Type.String(), Type.Null()], { description: 'As `input`; null for a failure.' })),
    is_input_cut: Type.Optional(Type.Boolean()),
    is_output_cut: Type.Optional(Type.Boolean()),
  },
  { title: 'CallDetails' },
);

const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });

export const CALL_DOCS = {
  list: {
    tags: ['call'],
    operationId: 'listCalls',
    summary: 'Calls that have ended, newest first',
    description:
      'Failed and slow calls, and a sample of the others: docs/guides/call-history.md. A call appears within a second of its end. With `follow`, calls come in the order of their records instead.',
    querystring: describeParameters(CALLS_QUERY),
    response: {
      200: json(
        'A page.',
        Type.Object(
          { code: Type.Literal(200), calls: Type.Array(Call), next_cursor: Type.Union([Type.String(), Type.Null()]) },
          { title: 'CallList' },
        ),
      ),
      400: errorDocs('`invalid query: …`'),
      403: errorDocs('A viewer searched for a text.'),
      429: errorDocs('Too many lists are being read.'),
    },
  },
  get: {
    tags: ['call'],
    operationId: 'getCall',
    summary: 'A call with its spans, its input and its output',
    params: Type.Object({ id: Type.String({ description: 'The `id` of a list, or the id of an asynchronous call.' }) }),
    response: {
      200: json('It.', Type.Object({ code: Type.Literal(200), call: CallDetails }, { title: 'CallAnswer' })),
      404: errorDocs('`call not found: <id>`'),
    },
  },
} satisfies Readonly<Record<string, RouteDocs>>;
