import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { AgentInstances } from '../../agents/contract.ts';
import { failedPrecondition } from '../../core/error.ts';
import type { TokenVerifier } from '../../http/access/credentials.ts';
import { errorDocs, errors } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { isImageInterpreter, startImageInterpreter } from '../../templates/image-interpreter.ts';
import { dialDelaysOf, INTERPRETER } from '../../templates/templates.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { platformTokens } from './headers.ts';
import { BY_PORT } from './links.ts';
import { disableBodyParsing, type Passage } from './passage.ts';

export interface RunCodeOptions {
  readonly instances: Pick<AgentInstances, 'get' | 'access'>;
  readonly auth: TokenVerifier | null;
}

const DOCS: RouteDocs = {
  tags: ['agents'],
  operationId: 'runCode',
  summary: 'Run a cell of code in a sandbox with a code interpreter',
  description:
    'The sandbox has the template `code-interpreter-v1`, or an image with `python3`. Names stay for later cells of the same context. The end of the connection interrupts the cell.',
  params: Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) }),
  body: Type.Object({
    code: Type.String(),
    language: Type.Optional(Type.String({ description: '`python` (default), or `javascript` where Node.js exists.' })),
    context_id: Type.Optional(Type.String({ description: 'A context of the interpreter, instead of a language.' })),
    env_vars: Type.Optional(
      Type.Record(Type.String(), Type.String(), { description: 'Variables for this cell in addition to others.' }),
    ),
  }),
  response: {
    200: {
      description:
        'One JSON object a line, as they happen: `stdout` and `stderr` with `text`, `result`, `error`, `keepalive`, and `end_of_execution` as the last one.',
      content: { 'application/x-ndjson': { schema: Type.String() } },
    },
    400: errors[400],
    404: errors[404],
    409: errorDocs('The sandbox has no interpreter, or its image cannot run it, or it does not run.'),
    502: errorDocs('The interpreter does not listen.'),
    504: errorDocs('The interpreter did not answer in time.'),
  },
};

/** Adds `POST /api/agent/{instanceId}/code`, which passes a cell to the interpreter of the template. */
export function addRunCodeRoute(app: FastifyInstance, passage: Passage, { instances, auth }: RunCodeOptions): void {
  const run = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { instanceId } = request.params as { readonly instanceId: string };
    const { spec } = await instances.get(request.tenant, instanceId);
    const { port } = INTERPRETER;
    const dialDelaysMs = dialDelaysOf(spec.template, port);
    const isOfImage = isImageInterpreter(spec, port);
    if (dialDelaysMs.length === 0 && !isOfImage) {
      throw failedPrecondition(
        `agent ${instanceId} has no code interpreter: create it with template ${INTERPRETER.template}, or from an image with python3`,
      );
    }
    const tokens = await platformTokens(request.raw, auth);
    const access = async (signal: AbortSignal) => {
      const opened = await instances.access(request.tenant, instanceId);
      if (isOfImage) await startImageInterpreter(opened, spec, signal);
      return opened;
    };
    return await passage.pass(request, reply, {
      access,
      port,
      path: '/execute',
      tokens,
      headerChanges: BY_PORT,
      dialDelaysMs,
    });
  };
  app.register(async scope => {
    disableBodyParsing(scope);
    scope.route({
      method: 'POST',
      url: '/api/agent/:instanceId/code',
      config: { access: 'write', longLived: true, livesWith: LIVES_WITH_AGENT, docs: DOCS },
      ...passage.handlers(run),
    });
  });
}
