import type { FastifyInstance } from 'fastify';
import type { BuildRecord } from '../../builds/build-records.ts';
import type { CodeDependencies } from '../../builds/code-dependencies.ts';
import type { ExecutorDefaults } from '../../core/agent.ts';
import { BUILD, readBuild } from '../../core/build.ts';
import { CODE_TARGET } from '../../core/code-package.ts';
import { type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { LOG_QUERY, LogAnswers } from '../log-answer.ts';
import { BUILD_DOCS, BUILDS_QUERY } from './docs.ts';

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
      const id = await dependencies.begin({
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
