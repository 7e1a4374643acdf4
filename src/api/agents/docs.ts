import { Type } from 'typebox';
import { AGENT_CREATE } from '../../core/agent.ts';
import { EXEC } from '../../core/exec.ts';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { LOG_QUERY } from '../log-answer.ts';
import { CREATE_HEADERS, INVOKE_HEADERS } from './headers.ts';
import { DELETE_QUERY, LIST_QUERY, PREVIOUS_QUERY } from './queries.ts';
import {
  AgentCreated,
  AgentDeleted,
  AgentGot,
  AgentList,
  ExecDone,
  Invoked,
  InvokeFailed,
  NameTaken,
} from './schemas.ts';

const tags = ['agent'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const text = (description: string) => ({ description, content: { 'text/plain': { schema: Type.String() } } });
const byId = Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) });
const timing = (stages: string) => ({
  'Server-Timing': { type: 'string', description: `Where the time went, in milliseconds by stage: \`${stages}\`.` },
});
const createStages = timing(
  'http;dur=0.412, checks;dur=…, row, start, orders, mounts, limits, rights (these four where the driver knows them), connect, runtime (where the runtime knows it), load, record',
);
const deleteStages = timing('http;dur=0.087, row;dur=…, pre_stop, end, remove, record');
const unknown = { 404: errorDocs('`instance not found: <id>`') };
const busy = {
  409: errorDocs('The instance is in a state in which this cannot be done.'),
  503: errorDocs('What runs the sandbox does not answer.'),
  504: errorDocs('It took too long.'),
};

/** The OpenAPI documentation of the agent routes. */
export const AGENT_DOCS = {
  create: {
    tags,
    operationId: 'createAgent',
    summary: 'Create an agent instance',
    description:
      'Inline mode with `runtime_spec`, registered mode with `urn`; with both, inline. Answers when the sandbox runs and its code was loaded or failed to load, which does not fail the create.',
    headers: describeParameters(CREATE_HEADERS),
    body: AGENT_CREATE.describe(),
    response: {
      200: { ...json('It runs.', AgentCreated), headers: createStages },
      400: errorDocs('The request is wrong; the message says where.'),
      409: json('The name is taken, or the idempotency key came with another body.', NameTaken),
      500: errorDocs('`failed to create agent: <cause>`; nothing is left behind.'),
    },
  },
  get: {
    tags,
    operationId: 'getAgent',
    summary: 'Get an agent instance',
    params: byId,
    response: { 200: json('The instance.', AgentGot), ...unknown },
  },
  list: {
    tags,
    operationId: 'listAgents',
    summary: 'List agent instances, ordered by id',
    querystring: describeParameters(LIST_QUERY),
    response: { 200: json('One page.', AgentList) },
  },
  delete: {
    tags,
    operationId: 'deleteAgent',
    summary: 'Delete an agent instance',
    description: 'Runs `pre_stop`, ends and removes the sandbox.',
    params: byId,
    querystring: describeParameters(DELETE_QUERY),
    response: { 200: { ...json('The agent was deleted.', AgentDeleted), headers: deleteStages }, ...unknown },
  },
  restart: {
    tags,
    operationId: 'restartAgent',
    summary: 'Restart an agent instance: the same id, a new sandbox',
    params: byId,
    response: {
      200: json('It runs again.', AgentCreated),
      ...unknown,
      409: errorDocs(
        'It is being created, restarted or deleted, which the message says, or was deleted in the middle of the restart.',
      ),
      500: errorDocs('`failed to restart agent: <cause>`; the instance is `FAILED`.'),
    },
  },
  invoke: {
    tags,
    operationId: 'invokeAgent',
    summary: 'Call the handler of an agent instance',
    description: `The body is the event, passed whole; empty is \`{}\`; at most ${LIMITS.invokeBodyBytes} bytes. Calls run one at a time, in order of arrival.`,
    params: byId,
    headers: describeParameters(INVOKE_HEADERS),
    body: Type.Unknown({ description: 'Any JSON.' }),
    response: {
      200: json('What the handler returned.', Invoked),
      400: errorDocs('`failed to build invoke request: …`'),
      ...unknown,
      429: {
        ...errorDocs('`invoke failed: too many calls are waiting`'),
        headers: { 'Retry-After': Type.Integer({ description: 'Seconds.' }) },
      },
      500: json('`invoke failed: code=<n> err=<text>`, or `invoke failed: <err>`', InvokeFailed),
    },
  },
  logs: {
    tags,
    operationId: 'agentLogs',
    summary: 'What the user’s code wrote',
    params: byId,
    querystring: describeParameters({ ...LOG_QUERY, ...PREVIOUS_QUERY }),
    response: { 200: text('The lines.'), ...unknown, ...busy },
  },
  exec: {
    tags,
    operationId: 'agentExec',
    summary: 'Run a command inside the sandbox',
    params: byId,
    body: EXEC.describe(),
    response: { 200: json('It ended.', ExecDone), ...unknown, ...busy },
  },
} as const satisfies Record<string, RouteDocs>;
