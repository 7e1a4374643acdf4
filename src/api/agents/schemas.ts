import { Type } from 'typebox';
import { Warnings } from '../../http/docs.ts';

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
  status: Type.Enum(['CREATING', 'RUNNING', 'STOPPING', 'FAILED']),
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
  isolation: Type.Array(Type.String(), { description: 'The layers that hold: `mount`, `pid`, `cgroup.memory` …' }),
  warnings: Warnings,
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

export const ExecDone = Type.Object({
  returncode: Type.Integer({ description: '-1 at the timeout.' }),
  stdout: Type.String(),
  stderr: Type.String(),
  truncated: Type.Boolean(),
  timed_out: Type.Boolean({ description: 'The time limit ended it; `returncode` is -1 then.' }),
  warnings: Warnings,
});
