import { Type } from 'typebox';
import { PROCESS, PROCESS_SIGNAL } from '../../core/process.ts';
import { errors, upgrade } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';

const tags = ['agent'];
const Ok = Type.Literal(200);
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const byId = Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) });
const byProcess = Type.Object({
  instanceId: Type.String({ description: 'The `instance_id` of the create.' }),
  process: Type.String({ description: 'The pid inside, or the tag of the start.' }),
});

/** The OpenAPI documentation of an agent's processes. */
export const PROCESS_DOCS = {
  start: {
    tags,
    operationId: 'startProcess',
    summary: 'Start a process that outlives its connection',
    description: 'The process continues until it ends, is killed, or the sandbox ends; also while the service is down.',
    params: byId,
    body: PROCESS.describe(),
    response: {
      200: json('It runs.', Type.Object({ code: Ok, pid: Type.Integer({ description: 'Inside the sandbox.' }) })),
      ...errors,
    },
  },
  list: {
    tags,
    operationId: 'listProcesses',
    summary: 'List the running processes that `startProcess` started',
    params: byId,
    response: {
      200: json(
        'The processes in order of their start.',
        Type.Object({
          code: Ok,
          processes: Type.Array(
            Type.Object({
              pid: Type.Integer(),
              command: Type.Array(Type.String()),
              working_dir: Type.String(),
              user: Type.String({ description: 'Empty: the user of the sandbox.' }),
              tag: Type.Union([Type.String(), Type.Null()]),
              tty: Type.Boolean(),
              started_at: Type.String({ format: 'date-time' }),
            }),
          ),
        }),
      ),
      ...errors,
    },
  },
  signal: {
    tags,
    operationId: 'signalProcess',
    summary: 'Signal a process, not its children',
    params: byProcess,
    body: PROCESS_SIGNAL.describe(),
    isBodyOptional: true,
    response: { 200: json('It was signalled.', Type.Object({ code: Ok })), ...errors },
  },
  attach: {
    tags,
    operationId: 'attachProcess',
    summary: 'Listen to a process over a WebSocket: its output from now on, and its end',
    description:
      'The messages are described in docs/guides/files-terminals-ports.md. Closing the connection leaves the process running.',
    params: byProcess,
    response: { ...upgrade, ...errors },
  },
} as const satisfies Record<string, RouteDocs>;
