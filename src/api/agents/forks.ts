import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { AgentInstances } from '../../agents/contract.ts';
import { failedPrecondition } from '../../core/error.ts';
import { AGENT_FORK, readFork } from '../../core/fork.ts';
import type { Instance } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { frontendErrors } from '../errors.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { type ForksOptions, forkSandbox } from '../sandbox-forks.ts';
import { CREATE_HEADERS } from './parameters.ts';

const AgentFork = Type.Object(
  {
    instance_id: Type.Optional(Type.String({ format: 'uuid' })),
    name: Type.Optional(Type.String()),
    error: Type.Optional(
      Type.Object(
        { code: Type.Integer({ description: 'The status of such an error of a create.' }), message: Type.String() },
        { title: 'AgentForkError', description: 'Why this fork did not start; the other members are absent then.' },
      ),
    ),
  },
  { title: 'AgentFork' },
);

/** The OpenAPI documentation of the fork of agents. */
const FORK_DOCS = {
  tags: ['agent'],
  operationId: 'forkAgent',
  summary: 'Start sandboxes with the files of a sandbox without code',
  description:
    'A fork has a copy of the files, the variables, the labels and the settings. Memory is not copied, so the original must run no processes, unless `files_only` is set.',
  params: Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) }),
  headers: describeParameters({ idempotencyKey: CREATE_HEADERS.idempotencyKey }),
  body: AGENT_FORK.describe(),
  response: {
    201: {
      description: 'An entry for each fork: the one that runs, or the error of its start.',
      content: { 'application/json': { schema: Type.Array(AgentFork) } },
    },
    400: errorDocs('The request is wrong, or the original runs processes.'),
    404: errorDocs('`instance not found: <id>`'),
    409: errorDocs('It has code, runs in an image, does not run, or is being changed.'),
  },
} as const satisfies RouteDocs;

interface ById {
  Params: { instanceId: string };
}

export interface ForkRouteOptions extends ForksOptions {
  readonly instances: Pick<AgentInstances, 'get' | 'access' | 'create'>;
}

/** Adds the route that starts sandboxes with the files of another one. */
export function addForkRoute(app: FastifyInstance, options: ForkRouteOptions): void {
  app.post<ById>(
    '/api/agent/:instanceId/fork',
    {
      bodyLimit: LIMITS.requestBodyBytes,
      config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: FORK_DOCS },
    },
    async (request, reply) => reply.code(201).send(await fork(request, options)),
  );
}

async function fork(request: FastifyRequest<ById>, options: ForkRouteOptions): Promise<readonly object[]> {
  const { tenant, params, body } = request;
  const { nameOf, namespace, count, env, ttlMs, isFilesOnly } = readRequest(request, AGENT_FORK, readFork);
  const original = await options.instances.get(tenant, params.instanceId);
  checkForkable(original);
  const key = CREATE_HEADERS.idempotencyKey.read(request.headers);
  const sent = createHash('sha256').update(`fork\n${tenant}\n${original.id}\n`);
  const requestHash = sent.update((body as Buffer | undefined) ?? '').digest('hex');
  const outcomes = await forkSandbox(
    original,
    {
      count,
      isFilesOnly,
      insteadOfEnding: 'set files_only to copy the files without them',
      changeOf: index => {
        const name = nameOf(index);
        return {
          ...(name !== undefined && { name }),
          ...(namespace !== undefined && { namespace }),
          ...(ttlMs !== undefined && { ttlMs }),
          env: { ...original.spec.env, ...env },
        };
      },
      ...(key !== undefined && { idempotencyOf: index => ({ key: `fork:${key}:${index}`, requestHash }) }),
    },
    options,
  );
  return outcomes.map(outcome => {
    if ('instance' in outcome) {
      const { id, spec } = outcome.instance;
      return { instance_id: id, name: spec.name };
    }
    return { error: frontendErrors(outcome.error).body };
  });
}

/** Fails with `failed_precondition` if the agent has code, whose memory cannot be copied. */
function checkForkable({ id, spec }: Instance): void {
  if (spec.template !== undefined) return;
  const kind = spec.durable === undefined ? 'has code, whose memory cannot be copied' : 'is durable';
  throw failedPrecondition(`instance ${id} ${kind}: only sandboxes without code can be forked`);
}
