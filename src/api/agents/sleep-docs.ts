import { Type } from 'typebox';
import { AGENT_UPDATE } from '../../core/agent-update.ts';
import { ALARM } from '../../core/alarm.ts';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { AgentGot } from './docs.ts';
import { IMPORT_QUERY, SLEEP_QUERY, UPDATE_QUERY } from './parameters.ts';

const tags = ['agent'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const byId = Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) });
const byName = Type.Object({
  instanceId: byId.properties.instanceId,
  name: Type.String({ description: 'The name of the alarm: 1 to 128 characters.' }),
});
const bytes = Type.Unsafe({ type: 'string', format: 'binary' });
const unknown = { 404: errorDocs('`instance not found: <id>`') };

const AgentWoken = Type.Object({
  code: AgentGot.properties.code,
  woken: Type.Boolean({ description: 'false: it was running.' }),
  instance: AgentGot.properties.instance,
});

const AgentInUse = Type.Object({
  code: Type.Literal(409),
  message: Type.String(),
  awake_because: Type.Optional(
    Type.Array(Type.String(), {
      description: 'What uses it: `call 2`, `access 1`, `save 1`. Only of an agent in use.',
    }),
  ),
});

const AgentAlarm = Type.Object(
  {
    name: Type.String(),
    id: Type.String({ description: 'Names one due time; the retries of that time have the same id.' }),
    at: Type.String({ format: 'date-time', description: 'The next time.' }),
    every: Type.Optional(Type.Number({ description: 'Seconds.' })),
    cron: Type.Optional(Type.String()),
    tz: Type.Optional(Type.String()),
    max_late_seconds: Type.Optional(Type.Number()),
    retry_at: Type.Optional(Type.String({ format: 'date-time', description: 'Only after a failed delivery.' })),
    attempts: Type.Integer({ description: 'Failed deliveries of this time.' }),
    missed: Type.Integer({ description: 'Earlier regular times that were not delivered.' }),
    failed: Type.Boolean({ description: 'true: all attempts have failed; it is not delivered again.' }),
    last_error: Type.Optional(Type.String({ description: 'Why the last delivery failed.' })),
  },
  { title: 'AgentAlarm' },
);

/** The OpenAPI documentation of the sleep of agents. */
export const SLEEP_DOCS = {
  sleep: {
    tags,
    operationId: 'sleepAgent',
    summary: 'Put a durable agent to sleep: its sandbox is removed, its saved state stays',
    description: '`pre_stop` does not run. The next call, command or file request wakes it.',
    params: byId,
    querystring: describeParameters(SLEEP_QUERY),
    response: {
      200: json('It is SLEEPING.', AgentGot),
      ...unknown,
      409: json('It is in use, is not durable, does not run, or is being changed.', AgentInUse),
      503: errorDocs('What runs the sandbox does not answer.'),
    },
  },
  wake: {
    tags,
    operationId: 'wakeAgent',
    summary: 'Wake a sleeping agent: a new sandbox with the saved state',
    params: byId,
    response: {
      200: json('It runs.', AgentWoken),
      ...unknown,
      409: errorDocs('It does not run and is not durable, or is being changed.'),
      429: errorDocs('The machine has no room for it. It stays asleep.'),
      503: errorDocs('Its runtime does not start; the instance may be `FAILED`.'),
    },
  },
  export: {
    tags,
    operationId: 'exportAgent',
    summary: 'Export a durable agent: its settings, its saved state and its alarms',
    description:
      'A tar with `agent.json`, `state.json` and `alarms.json`. It has no values of secrets, no code packages and no files.',
    params: byId,
    response: {
      200: { description: 'The tar.', content: { 'application/x-tar': { schema: bytes } } },
      ...unknown,
      409: errorDocs('It is not durable.'),
    },
  },
  import: {
    tags,
    operationId: 'importAgent',
    summary: 'Make a sleeping agent of an export',
    consumes: ['application/octet-stream'],
    querystring: describeParameters(IMPORT_QUERY),
    body: { content: { 'application/octet-stream': { schema: bytes } } },
    response: {
      201: json('It is SLEEPING.', Type.Object({ code: Type.Literal(201), instance_id: Type.String() })),
      400: errorDocs('`invalid export: …`'),
      409: errorDocs('Its name is taken, or a code package, a mount or a secret does not exist.'),
      413: errorDocs('It is too large.'),
    },
  },
  update: {
    tags,
    operationId: 'updateAgent',
    summary: 'Change settings of a durable agent: its saved state and its alarms stay',
    description: 'The members are those of the create. What the body does not name stays as it is.',
    params: byId,
    querystring: describeParameters(UPDATE_QUERY),
    body: { content: { 'application/json': { schema: AGENT_UPDATE.describe() } } },
    response: {
      200: json('The agent with its new settings.', AgentGot),
      400: errorDocs('`invalid request body: …`'),
      ...unknown,
      409: json(
        'It is not durable, cannot run so, or is being changed. With `apply=now` also: it is still in use; the change is stored.',
        AgentInUse,
      ),
      503: errorDocs('What runs the sandbox does not answer.'),
    },
  },
} as const satisfies Record<string, RouteDocs>;

/** The OpenAPI documentation of the alarms of agents. */
export const ALARM_DOCS = {
  list: {
    tags,
    operationId: 'listAgentAlarms',
    summary: 'List the alarms of a durable agent, without their payloads',
    params: byId,
    response: { 200: json('By name.', Type.Array(AgentAlarm)), ...unknown },
  },
  set: {
    tags,
    operationId: 'setAgentAlarm',
    summary: 'Set an alarm of a durable agent, and replace the one of this name',
    description: 'At its time the agent gets it as a call, also if it sleeps then.',
    params: byName,
    body: ALARM.describe(),
    response: {
      200: json('It is stored.', Type.Object({ code: Type.Literal(200), alarm: AgentAlarm })),
      400: errorDocs('The body is wrong.'),
      ...unknown,
      409: errorDocs('The agent is not durable, or has too many alarms.'),
    },
  },
  cancel: {
    tags,
    operationId: 'cancelAgentAlarm',
    summary: 'Cancel an alarm of a durable agent',
    params: byName,
    response: {
      200: json('It is cancelled.', Type.Object({ code: Type.Literal(200), status: Type.Literal('cancelled') })),
      404: errorDocs('`instance not found: <id>`, or there is no alarm of this name.'),
    },
  },
} as const satisfies Record<string, RouteDocs>;
