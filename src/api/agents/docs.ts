import { Type } from 'typebox';
import { AGENT_CREATE } from '../../core/agent.ts';
import { EXEC } from '../../core/exec.ts';
import { AGENT_TTL } from '../../core/lifetime.ts';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters } from '../../core/parameter.ts';
import { bytes, errorDocs, errors, upgrade, Warnings } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { LOG_QUERY } from '../log-answer.ts';
import {
  CREATE_HEADERS,
  DELETE_QUERY,
  DOWNLOAD_QUERY,
  FILES_QUERY,
  INVOKE_HEADERS,
  LIST_QUERY,
  MKDIR_QUERY,
  PREVIOUS_QUERY,
  TERMINAL_QUERY,
} from './parameters.ts';

/**
 * Shapes of answers, for the OpenAPI document only. No answer passes a schema at run time.
 * `core/` declares the shapes of requests.
 */
const Code200 = Type.Literal(200);
/** A value of an environment. */
const Variable = Type.Union([Type.String(), Type.Object({ secret: Type.String() })]);
const InstanceId = Type.String({ format: 'uuid' });

export const AgentCreated = Type.Object({
  code: Code200,
  instance_id: InstanceId,
  warnings: Warnings,
});

export const NameTaken = Type.Object({
  code: Type.Literal(409),
  message: Type.String(),
  instance_id: Type.Optional(Type.String({ description: 'The instance that holds the name.' })),
  warnings: Warnings,
});

const AgentInstance = Type.Object({
  instance_id: InstanceId,
  namespace: Type.String(),
  name: Type.String(),
  tenant: Type.String(),
  status: Type.Enum(['CREATING', 'RUNNING', 'STOPPING', 'FAILED', 'PAUSED', 'SLEEPING']),
  status_reason: Type.Optional(
    Type.String({
      description: 'Why the agent is FAILED. For a RUNNING agent, why its state is unknown (its node does not answer).',
    }),
  ),
  sandbox_type: Type.String(),
  sandbox_id: Type.String(),
  node_id: Type.String(),
  node_ip: Type.String(),
  sandbox_ip: Type.String(),
  runtime: Type.String(),
  handler: Type.String(),
  codePath: Type.String(),
  httpProfile: Type.Optional(Type.String()),
  extendedHandler: Type.Optional(
    Type.Object({
      initializer: Type.String(),
      pre_stop: Type.String(),
      alarm: Type.Optional(Type.String()),
      sleep: Type.Optional(Type.String()),
    }),
  ),
  dependencies: Type.Optional(Type.String()),
  urn: Type.Optional(Type.String()),
  rootfs: Type.Object({
    type: Type.Enum(['host', 'image']),
    imageurl: Type.String(),
    user: Type.String(),
    workspace: Type.String(),
    mounts: Type.Array(Type.Object({ source: Type.String(), target: Type.String(), readonly: Type.Boolean() })),
  }),
  ports: Type.Array(Type.String()),
  port_mappings: Type.Array(
    Type.Object({
      protocol: Type.Enum(['tcp', 'udp']),
      container_port: Type.Integer(),
      host_ip: Type.String(),
      host_port: Type.Integer(),
    }),
  ),
  expose: Type.Optional(
    Type.Object(
      {
        port: Type.Integer(),
        access: Type.Enum(['token', 'link', 'public']),
        address: Type.Union([Type.String(), Type.Null()], {
          description: 'null: its tenant cannot stand in a host name.',
        }),
        path: Type.String({ description: 'At the service’s own host name.' }),
      },
      { title: 'AgentAddress', description: 'Only of one that was created with it.' },
    ),
  ),
  env_vars: Type.Record(Type.String(), Variable),
  resources: Type.Object({ cpu: Type.Integer(), memory: Type.Integer() }),
  start_time: Type.Union([Type.String({ format: 'date-time' }), Type.Null()]),
  restarts: Type.Integer(),
  restart_policy: Type.Optional(
    Type.Object({
      policy: Type.Enum(['never', 'on-failure', 'always']),
      max_restarts: Type.Optional(Type.Union([Type.Integer(), Type.Null()])),
      backoff_seconds: Type.Optional(Type.Number()),
    }),
  ),
  restart_at: Type.Optional(Type.String({ format: 'date-time', description: 'When its policy starts it again.' })),
  template: Type.Optional(Type.String({ description: 'Only of a sandbox without code.' })),
  labels: Type.Optional(Type.Record(Type.String(), Type.String())),
  expires_at: Type.Optional(
    Type.String({ format: 'date-time', description: 'The end of its time to live, which does not run in a pause.' }),
  ),
  idle_seconds: Type.Optional(Type.Number()),
  on_expiry: Type.Optional(Type.Enum(['delete', 'pause'])),
  paused_at: Type.Optional(Type.String({ format: 'date-time', description: 'Only of a PAUSED one.' })),
  durable: Type.Optional(
    Type.Object(
      {
        schema: Type.Integer(),
        state_bytes: Type.Integer({ description: 'Size of the saved state as JSON.' }),
        state_version: Type.Integer({ description: 'Number of saves.' }),
        saved_at: Type.Optional(Type.String({ format: 'date-time' })),
        wakes: Type.Integer({ description: 'Number of starts after the first.' }),
        sleep_after_seconds: Type.Number({ description: 'Time without use until it sleeps; 0: only on request.' }),
        files: Type.Optional(
          Type.Object({ path: Type.String(), max_mb: Type.Integer() }, { description: 'As asked.' }),
        ),
        next_alarm_at: Type.Optional(Type.String({ format: 'date-time', description: 'Only with an alarm.' })),
        slept_at: Type.Optional(Type.String({ format: 'date-time', description: 'Only of a SLEEPING one.' })),
        is_changed: Type.Optional(
          Type.Boolean({ description: 'true: the next start takes the settings of this record.' }),
        ),
      },
      { title: 'AgentDurable', description: 'Only of a durable agent.' },
    ),
  ),
  isolation: Type.Array(Type.String(), { description: 'The layers that hold: `mount`, `pid`, `cgroup.memory` …' }),
  warnings: Warnings,
  load_error: Type.Optional(Type.String({ description: 'Why its code could not be loaded.' })),
});

export const AgentGot = Type.Object({ code: Code200, instance: AgentInstance });

export const AgentResumed = Type.Object({
  code: Code200,
  resumed: Type.Boolean({ description: 'false: it was running.' }),
  instance: AgentInstance,
});

export const AgentList = Type.Object({
  code: Code200,
  instances: Type.Array(AgentInstance),
  next_cursor: Type.Union([Type.String(), Type.Null()]),
});

export const AgentDeleted = Type.Object({ code: Code200, status: Type.Literal('deleted') });

export const Invoked = Type.Object({
  code: Code200,
  data: Type.Unknown({ description: 'What the handler returned.' }),
  message: Type.Literal(''),
});

export const InvokeFailed = Type.Object({ code: Type.Literal(500), data: Type.Null(), message: Type.String() });

export const ExecDone = Type.Object({
  returncode: Type.Integer({ description: '-1 at the timeout.' }),
  stdout: Type.String(),
  stderr: Type.String(),
  truncated: Type.Boolean(),
  timed_out: Type.Boolean({ description: 'The time limit ended it; `returncode` is -1 then.' }),
  warnings: Warnings,
});

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
  setTtl: {
    tags,
    operationId: 'setAgentTtl',
    summary: 'Set the time to live of an agent instance',
    params: byId,
    body: AGENT_TTL.describe(),
    response: {
      200: json('The instance with its new end.', AgentGot),
      400: errorDocs('The request is wrong.'),
      ...unknown,
    },
  },
  pause: {
    tags,
    operationId: 'pauseAgent',
    summary: 'Pause an agent instance: freeze its processes, keep their memory',
    description:
      'Open calls end; until the resume each call, command and other access fails at once. Its time to live stands still.',
    params: byId,
    response: {
      200: json('It is PAUSED.', AgentGot),
      ...unknown,
      409: errorDocs('It is paused already, does not run, is being changed, or its sandbox type cannot pause.'),
      503: busy[503],
    },
  },
  resume: {
    tags,
    operationId: 'resumeAgent',
    summary: 'Resume a paused agent instance',
    params: byId,
    response: {
      200: json('It runs.', AgentResumed),
      ...unknown,
      409: errorDocs('It neither is paused nor runs, or is being changed.'),
      503: errorDocs('Its runtime does not answer; the instance may be `FAILED`.'),
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
      200: {
        ...json('What the handler returned.', Invoked),
        headers: {
          'X-Rookery-Woke': Type.String({ description: 'Only if the call waited for a start: `call` or `crash`.' }),
        },
      },
      400: errorDocs('`failed to build invoke request: …`'),
      ...unknown,
      409: errorDocs('`instance <id> is asleep`, with `X-Rookery-Wake: never`.'),
      429: {
        ...errorDocs('`invoke failed: too many calls are waiting`'),
        headers: { 'Retry-After': Type.Integer({ description: 'Seconds.' }) },
      },
      500: {
        ...json('`invoke failed: code=<n> err=<text>`, or `invoke failed: <err>`', InvokeFailed),
        headers: { 'X-Inner-Code': Type.Integer({ description: 'The code of a failure of user code.' }) },
      },
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

const Ok = Type.Literal(200);

const fileHeaders = { 'X-File-Mode': Type.String({ description: 'Permission bits in octal.' }) };

/** The OpenAPI documentation of an agent's files. */
export const FILE_DOCS = {
  upload: {
    tags,
    operationId: 'uploadFile',
    summary: 'Write a file inside the sandbox',
    description:
      'The fields stand before the file. The file takes the place of what is at the path when all of it has arrived; when that fails, nothing has changed.',
    params: byId,
    consumes: ['multipart/form-data'],
    body: Type.Object({
      path: Type.String({
        minLength: 1,
        description: 'Where it is to be. Ends it in `/` or is a directory there, the name of the file is added.',
      }),
      mode: Type.Optional(
        Type.String({ description: 'Permission bits in octal; default those of the file that is there, else `644`.' }),
      ),
      file: Type.String({ format: 'binary', description: `At most ${LIMITS.fileUploadBytes} bytes.` }),
    }),
    response: {
      200: json('It is there.', Type.Object({ code: Ok, path: Type.String(), size: Type.Integer() })),
      ...errors,
    },
  },
  download: {
    tags,
    operationId: 'downloadFile',
    summary: 'Read a file inside the sandbox',
    description: 'One range (`Range`, `If-Range`) and conditions (`If-None-Match`, `If-Modified-Since`) are heeded.',
    params: byId,
    querystring: describeParameters(DOWNLOAD_QUERY),
    response: {
      200: {
        description: 'The file.',
        headers: fileHeaders,
        content: { 'application/octet-stream': { schema: bytes } },
      },
      206: {
        description: 'The range.',
        headers: fileHeaders,
        content: { 'application/octet-stream': { schema: bytes } },
      },
      304: { description: 'It is what the caller has already.' },
      416: errorDocs('The range is outside the file.'),
      ...errors,
    },
  },
  list: {
    tags,
    operationId: 'listFiles',
    summary: 'List a directory inside the sandbox, ordered by path',
    params: byId,
    querystring: describeParameters(FILES_QUERY),
    response: {
      200: json(
        'What is in it.',
        Type.Object({
          code: Ok,
          files: Type.Array(
            Type.Object({
              path: Type.String({ description: 'Absolute, inside.' }),
              name: Type.String(),
              not_utf8: Type.Optional(
                Type.Literal(true, {
                  description:
                    'Only where the path is not UTF-8: `path` and `name` have U+FFFD for each byte that is none, and no request can name the file.',
                }),
              ),
              type: Type.Enum(['file', 'directory', 'symlink', 'other']),
              size: Type.Integer({ description: 'Bytes.' }),
              mode: Type.String({ description: 'Octal, such as `0644`.' }),
              modified_at: Type.String({ format: 'date-time' }),
            }),
          ),
          truncated: Type.Boolean({ description: `There are more than ${LIMITS.fileList.maxEntries}.` }),
        }),
      ),
      ...errors,
    },
  },
  mkdir: {
    tags,
    operationId: 'makeDirectory',
    summary: 'Make a directory inside the sandbox',
    params: byId,
    querystring: describeParameters(MKDIR_QUERY),
    response: { 200: json('It is there.', Type.Object({ code: Ok, path: Type.String() })), ...errors },
  },
} as const satisfies Record<string, RouteDocs>;

/** The OpenAPI documentation of an agent's terminal. */
export const TERMINAL_DOCS: RouteDocs = {
  tags,
  operationId: 'openExec',
  summary: 'Run a command inside the sandbox over a WebSocket, with or without a terminal',
  description: 'The messages are described in docs/guides/files-terminals-ports.md.',
  params: byId,
  querystring: describeParameters(TERMINAL_QUERY),
  response: { ...upgrade, ...errors },
};
