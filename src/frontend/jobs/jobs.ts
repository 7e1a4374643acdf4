import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify';
import { JOB_SUBMIT, jobRecord, readJobSubmission } from '../../core/job.ts';
import { withWarnings } from '../../http/answer.ts';
import { answerController } from '../../http/caller.ts';
import { sendJsonList, sendJsonText } from '../../http/masking.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import type { JobService } from '../../jobs/create-jobs.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { type Query, readQuery } from '../query.ts';
import { JOB_DOCS, JOB_LOG_QUERY } from './docs.ts';
import { answerErrorsAsText } from './errors.ts';
import { addPackageRoutes } from './packages.ts';
import { addScheduleRoutes } from './schedules.ts';
import { addTailRoute } from './tail.ts';

/** The version of Ray that clients see: they ask for at least 2.8. */
const RAY_VERSION = '2.60.0';

export interface JobRoutesOptions extends JobService {
  readonly version: string;
}

/** Reads of much at once. */
const COSTLY: ReadonlySet<RouteDocs> = new Set([JOB_DOCS.list, JOB_DOCS.logs]);

type Handler = (
  request: FastifyRequest<{ Params: { id: string }; Querystring: Query }>,
  reply: FastifyReply,
) => Promise<unknown>;

/** The Ray Jobs REST API, with and without a slash at the end of each path. */
export function addJobRoutes(app: FastifyInstance, options: JobRoutesOptions): void {
  const { jobs } = options;
  answerErrorsAsText(app);
  const add = (
    method: 'GET' | 'POST' | 'DELETE',
    url: string,
    access: 'read' | 'write',
    docs: RouteDocs,
    handle: Handler,
  ) => {
    const handler = handle as RouteHandlerMethod;
    const config = COSTLY.has(docs) ? ({ access, costly: 'scan' } as const) : { access };
    app.route({ method, url, config: { ...config, docs }, handler });
    // Documented once.
    app.route({ method, url: `${url}/`, config, handler });
  };

  add('GET', '/api/version', 'read', JOB_DOCS.version, async () => ({
    version: '4',
    ray_version: RAY_VERSION,
    ray_commit: '0'.repeat(40),
    session_name: 'rookery',
    rookery_version: options.version,
  }));

  add('POST', '/api/jobs', 'write', JOB_DOCS.submit, async request => {
    const submission = readRequest(request, JOB_SUBMIT, body => readJobSubmission(body, ''));
    const { id } = await jobs.submit(request.tenant, submission);
    return withWarnings({ job_id: id, submission_id: id }, request.warnings);
  });

  add('GET', '/api/jobs', 'read', JOB_DOCS.list, async (request, reply) =>
    sendJsonList(request, reply, jobs.list(request.tenant), jobRecord),
  );

  add('GET', '/api/jobs/:id', 'read', JOB_DOCS.get, async ({ tenant, params }) =>
    jobRecord(await jobs.get(tenant, params.id)),
  );

  add('DELETE', '/api/jobs/:id', 'write', JOB_DOCS.delete, async ({ tenant, params }) => {
    await jobs.delete(tenant, params.id);
    return { deleted: true };
  });

  add('POST', '/api/jobs/:id/stop', 'write', JOB_DOCS.stop, async ({ tenant, params }) => ({
    stopped: await jobs.stop(tenant, params.id),
  }));

  const closing = new AbortController();
  app.addHook('preClose', done => {
    closing.abort();
    done();
  });
  add('GET', '/api/jobs/:id/logs', 'read', JOB_DOCS.logs, async ({ tenant, params, query }, reply) => {
    const left = answerController(reply.raw);
    if (!readQuery(JOB_LOG_QUERY, query).follow) {
      return sendJsonText(reply, 'logs', await jobs.log(tenant, params.id, left.signal));
    }
    reply.raw.once(
      'close',
      onAbort(closing.signal, () => left.abort()),
    );
    const chunks = await jobs.follow(tenant, params.id, left.signal);
    return reply.type('text/plain; charset=utf-8').send(Readable.from(chunks));
  });

  addTailRoute(app, jobs);
  addPackageRoutes(app, options.packages);
  addScheduleRoutes(app, options.schedules);
}
