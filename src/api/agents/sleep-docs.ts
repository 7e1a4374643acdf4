import { Type } from 'typebox';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { AgentGot } from './docs.ts';
import { SLEEP_QUERY } from './parameters.ts';

const tags = ['agent'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const byId = Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) });
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
} as const satisfies Record<string, RouteDocs>;
