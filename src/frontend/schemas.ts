import { Type } from 'typebox';
import { LIMITS } from '../core/limits.ts';
import { SANDBOX_TYPES } from '../core/sandbox-types.ts';

/**
 * The shapes on the wire, for the OpenAPI document only: bodies are read by `core/`, and nothing that is sent passes a schema.
 * `null` counts as absent in every optional field, which a schema that lists each null would say less clearly.
 */
const Text = (options: object = {}) => Type.String({ pattern: '^[^\\u0000]*$', ...options });

const EnvVars = Type.Object(
  {},
  { additionalProperties: Text(), propertyNames: { pattern: '^(?!ROOKERY_)[A-Za-z_][A-Za-z0-9_]*$' } },
);

const Mount = Type.Object({
  source: Type.String({ pattern: '^/', description: 'Absolute path on the host.' }),
  target: Text({ description: 'Path inside the sandbox.' }),
  readonly: Type.Optional(Type.Boolean({ default: false })),
});

const AgentName = Type.String({
  minLength: 1,
  maxLength: LIMITS.agentNameChars,
  pattern: '^[^\\u0000-\\u001f\\u007f-\\u009f]*$',
});

const RuntimeSpec = Type.Object({
  runtime: Text({ minLength: 1, examples: ['python3.11'] }),
  sandbox_type: Type.Optional(Type.Enum(['', ...SANDBOX_TYPES], { description: 'Empty: the default executor.' })),
  codePath: Type.Optional(Text({ description: 'Code directory inside the sandbox; a mount has to bring it.' })),
  handler: Type.Optional(Text({ description: '`module.function`' })),
  extendedHandler: Type.Optional(
    Type.Object({
      initializer: Type.Optional(Text({ description: '`module.function`, once at the start.' })),
      pre_stop: Type.Optional(Text({ description: '`module.function`, once at the end.' })),
    }),
  ),
  rootfs: Type.Object({
    imageurl: Text({ minLength: 1 }),
    user: Type.Optional(Text({ description: 'Empty: root.' })),
    ports: Type.Optional(
      Type.Array(Type.String({ pattern: '^((tcp|udp):)?[1-9][0-9]{0,4}$' }), { description: '`[<proto>:]<port>`' }),
    ),
  }),
  cpu: Type.Optional(
    Type.Integer({
      minimum: LIMITS.cpuMillis.min,
      maximum: LIMITS.cpuMillis.max,
      default: LIMITS.cpuMillis.default,
      description: '1/1000 core',
    }),
  ),
  memory: Type.Optional(
    Type.Integer({
      minimum: LIMITS.memoryMb.min,
      maximum: LIMITS.memoryMb.max,
      default: LIMITS.memoryMb.default,
      description: 'MB',
    }),
  ),
});

export const AgentCreate = Type.Object(
  {
    namespace: AgentName,
    name: AgentName,
    workspace: Type.Optional(
      Type.String({ pattern: '^(/.*)?$', description: 'Absolute path on the host; empty: none.' }),
    ),
    env_vars: Type.Optional(EnvVars),
    mounts: Type.Optional(Type.Array(Mount)),
    runtime_spec: Type.Optional(RuntimeSpec),
    urn: Type.Optional(Text({ description: 'functionVersionUrn of a registered function (registered mode).' })),
  },
  { anyOf: [{ required: ['runtime_spec'] }, { required: ['urn'], properties: { urn: { minLength: 1 } } }] },
);

const Code200 = Type.Literal(200);
const InstanceId = Type.String({ format: 'uuid' });

export const AgentCreated = Type.Object({
  code: Code200,
  instance_id: InstanceId,
  warnings: Type.Optional(Type.Array(Type.String())),
});

export const NameTaken = Type.Object({
  code: Type.Literal(409),
  message: Type.String(),
  instance_id: Type.Optional(Type.String({ description: 'The instance that holds the name.' })),
});

const AgentInstance = Type.Object({
  instance_id: InstanceId,
  namespace: Type.String(),
  name: Type.String(),
  tenant: Type.String(),
  status: Type.Enum(['CREATING', 'RUNNING', 'STOPPING', 'FAILED']),
  status_reason: Type.Optional(Type.String({ description: 'Why it is FAILED.' })),
  sandbox_type: Type.String(),
  sandbox_id: Type.String(),
  node_id: Type.String(),
  node_ip: Type.String(),
  sandbox_ip: Type.String(),
  runtime: Type.String(),
  handler: Type.String(),
  codePath: Type.String(),
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
  env_vars: Type.Record(Type.String(), Type.String()),
  resources: Type.Object({ cpu: Type.Integer(), memory: Type.Integer() }),
  start_time: Type.Union([Type.String({ format: 'date-time' }), Type.Null()]),
  restarts: Type.Integer(),
  isolation: Type.Array(Type.String(), { description: 'The layers that hold: `mount`, `pid`, `cgroup.memory` …' }),
  warnings: Type.Optional(Type.Array(Type.String())),
  load_error: Type.Optional(Type.String({ description: 'Why its code could not be loaded.' })),
});

export const AgentGot = Type.Object({ code: Code200, instance: AgentInstance });

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

export const Exec = Type.Object({
  command: Type.Union(
    [Text({ minLength: 1 }), Type.Array(Text(), { minItems: 1, prefixItems: [Text({ minLength: 1 })] })],
    {
      description: 'A text is run by `/bin/sh -c`, a list is an argument vector.',
    },
  ),
  working_dir: Type.Optional(Text()),
  env: Type.Optional(EnvVars),
  stdin: Type.Optional(Type.String()),
  timeout: Type.Optional(
    Type.Number({
      minimum: 0.001,
      maximum: LIMITS.execTimeoutSeconds.max,
      default: LIMITS.execTimeoutSeconds.default,
      description: 'Seconds; at the end of them the whole process group ends.',
    }),
  ),
});

export const ExecDone = Type.Object({
  returncode: Type.Integer({ description: '-1 at the timeout.' }),
  stdout: Type.String(),
  stderr: Type.String(),
  truncated: Type.Boolean(),
});
