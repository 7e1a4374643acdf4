import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { BuildRecord } from '../../builds/build-records.ts';
import type { CodeDependencies } from '../../builds/code-dependencies.ts';
import type { ExecutorDefaults } from '../../core/agent.ts';
import { CODE_TARGET } from '../../core/code-package.ts';
import { BUILD, readBuild } from '../../core/dependencies.ts';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters, type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import { withWarnings } from '../../http/answer.ts';
import { errorDocs, Warnings } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { LOG_QUERY, LogAnswers } from '../log-answer.ts';
import { integer } from '../query.ts';

export interface BuildRoutesOptions {
  readonly dependencies: CodeDependencies;
  readonly executors: ExecutorDefaults;
}

interface ById {
  Params: { id: string };
  Querystring: Sent;
}

/** Adds the routes that install the dependencies of code and show the logs of these builds. */
export function addBuildRoutes(app: FastifyInstance, { dependencies, executors }: BuildRoutesOptions): void {
  const { records } = dependencies;
  const answers = new LogAnswers(app);
  const livesWith = LIVES_WITH_WORKER;

  app.post(
    '/api/builds',
    { config: { access: 'write', noEnvironments: true, livesWith, docs: BUILD_DOCS.create } },
    async request => {
      const { source, runtime, sandbox_type } = readRequest(request, BUILD, readBuild);
      const { tenant } = request;
      const id = await dependencies.startBuild({
        ...{ tenant, runtime, codePath: CODE_TARGET, dependencies: 'auto' as const },
        sandboxType: sandbox_type === '' ? executors.defaultSandboxType : sandbox_type,
        mounts: [{ source, target: CODE_TARGET, readonly: true }],
      });
      const build = id === null ? null : record(await records.get(tenant, id));
      return withWarnings({ code: 200, build }, request.warnings);
    },
  );

  app.get<ById>(
    '/api/builds',
    { config: { access: 'read', noEnvironments: true, costly: 'scan', livesWith, docs: BUILD_DOCS.list } },
    async ({ tenant, query }) => {
      const { limit } = readParameters(BUILDS_QUERY, query);
      return { code: 200, builds: (await records.list(tenant, limit)).map(record) };
    },
  );

  app.get<ById>(
    '/api/builds/:id',
    { config: { access: 'read', noEnvironments: true, livesWith, docs: BUILD_DOCS.get } },
    async ({ tenant, params }) => ({ code: 200, build: record(await records.get(tenant, params.id)) }),
  );

  app.get<ById>(
    '/api/builds/:id/logs',
    { config: { access: 'read', longLived: true, costly: 'log', livesWith, docs: BUILD_DOCS.logs } },
    async (request, reply) => {
      const { tail, follow } = readParameters<ParametersOf<typeof LOGS_QUERY>>(LOGS_QUERY, request.query);
      const { tenant, params } = request;
      const wanted = { tail, follow, sinceMs: null };
      if (request.method === 'HEAD') {
        await records.get(tenant, params.id);
        return answers.sendEmpty(reply);
      }
      return await answers.send(request, reply, wanted, signal => records.logs(tenant, params.id, wanted, signal));
    },
  );
}

const LOGS_QUERY = { tail: LOG_QUERY.tail, follow: LOG_QUERY.follow };

function record({ id, status, reason, tool, runtime, startedAtMs, endedAtMs }: BuildRecord): Record<string, unknown> {
  return {
    ...{ id, status, reason, tool, runtime },
    started_at: new Date(startedAtMs).toISOString(),
    ended_at: endedAtMs === 0 ? null : new Date(endedAtMs).toISOString(),
  };
}

/** The query of the list of builds. */
export const BUILDS_QUERY = { limit: integer({ min: 1, max: LIMITS.agentList.max }, LIMITS.agentList.default) };

const tags = ['code'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const Build = Type.Object(
  {
    id: Type.String({ description: 'The same content for the same runtime has the same.' }),
    status: Type.Enum(['BUILDING', 'READY', 'FAILED']),
    reason: Type.String({ description: 'Why it has failed.' }),
    tool: Type.String({ description: '`pip`, `uv` or `npm`.' }),
    runtime: Type.String(),
    started_at: Type.String({ format: 'date-time' }),
    ended_at: Type.Union([Type.String({ format: 'date-time' }), Type.Null()]),
  },
  { title: 'Build' },
);
const byId = Type.Object({ id: Type.String() });
const unknown = { 404: errorDocs('`build not found: <id>`') };

/** The OpenAPI documentation of builds. */
export const BUILD_DOCS = {
  create: {
    tags,
    operationId: 'createBuild',
    summary: 'Install what code asks for',
    description:
      'Begins to install what the files beside the code ask for, unless it is there, and answers at once. A create or a register with `dependencies: auto` does the same and waits for it: this is for those who want to see the log meanwhile, on the replica that answers.',
    body: BUILD.describe(),
    response: {
      200: json(
        'The build; null when the code asks for nothing.',
        Type.Object({ code: Type.Literal(200), build: Type.Union([Build, Type.Null()]), warnings: Warnings }),
      ),
      409: errorDocs('It cannot begin; the message says why.'),
      429: errorDocs('Too many are being made.'),
    },
  },
  list: {
    tags,
    operationId: 'listBuilds',
    summary: 'List the builds of the tenant on this replica, the newest first',
    querystring: describeParameters(BUILDS_QUERY),
    response: { 200: json('Builds.', Type.Object({ code: Type.Literal(200), builds: Type.Array(Build) })) },
  },
  get: {
    tags,
    operationId: 'getBuild',
    summary: 'The state of a build',
    params: byId,
    response: { 200: json('The build.', Type.Object({ code: Type.Literal(200), build: Build })), ...unknown },
  },
  logs: {
    tags,
    operationId: 'getBuildLogs',
    summary: 'What a build has printed',
    description: 'As text, at most 1 MiB. `follow` continues until the build has ended.',
    params: byId,
    querystring: describeParameters({ tail: LOG_QUERY.tail, follow: LOG_QUERY.follow }),
    response: {
      200: { description: 'Lines.', content: { 'text/plain': { schema: Type.String() } } },
      ...unknown,
    },
  },
} as const satisfies Record<string, RouteDocs>;
