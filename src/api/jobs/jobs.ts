import type { FastifyInstance, FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify';
import { JOB_SUBMIT, jobRecord, readJobSubmission } from '../../core/job.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { answerController } from '../../http/access/caller.ts';
import type { LivesWith } from '../../http/access/lives-with.ts';
import { sendJsonList, sendJsonText } from '../../http/access/masking.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import type { CostlyRead, RouteDocs } from '../../http/route-config.ts';
import type { JobService } from '../../jobs/create-jobs.ts';
import { LIVES_WITH_JOB, LIVES_WITH_JOB_LOG, LIVES_WITH_WORKER } from '../lives-with.ts';
import { LogAnswers } from '../log-answer.ts';
import { JOB_DOCS, JOB_LOG_QUERY } from './docs.ts';
import { answerErrorsAsText } from './errors.ts';
import { addPackageRoutes } from './packages.ts';
import { addScheduleRoutes } from './schedules.ts';
import { addTailRoute } from './tail.ts';

/** The version of Ray that clients see. They require at least 2.8. */
const RAY_VERSION = '2.60.0';

export interface JobRoutesOptions extends JobService {
  readonly version: string;
}

const FOLLOW = { tail: null, sinceMs: null, follow: true };

/** Routes that read a lot of data. */
const COSTLY: ReadonlyMap<RouteDocs, CostlyRead> = new Map<RouteDocs, CostlyRead>([
  [JOB_DOCS.list, 'scan'],
  [JOB_DOCS.logs, 'log'],
]);

/**
 * Routes that a particular replica has to answer.
 * A worker replica starts a job. The replica that runs or ran a job stops it and reads its log.
 * The other routes use records in the database, which every replica reads and writes.
 */
const OF_NODE: ReadonlyMap<RouteDocs, LivesWith> = new Map<RouteDocs, LivesWith>([
  [JOB_DOCS.submit, LIVES_WITH_WORKER],
  [JOB_DOCS.stop, LIVES_WITH_JOB],
  [JOB_DOCS.logs, LIVES_WITH_JOB_LOG],
]);

type Handler = (
  request: FastifyRequest<{ Params: { id: string }; Querystring: Sent }>,
  reply: FastifyReply,
) => Promise<unknown>;

/** Adds the Ray Jobs REST API, with and without a slash at the end of each path. */
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
    const livesWith = OF_NODE.get(docs);
    const costly = COSTLY.get(docs);
    const config = {
      access,
      ...(costly === undefined ? {} : { costly }),
      ...(livesWith === undefined ? {} : { livesWith }),
    };
    app.route({ method, url, config: { ...config, docs }, handler });
    // The second form of the path has no documentation of its own.
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

  const logAnswers = new LogAnswers(app);
  add('GET', '/api/jobs/:id/logs', 'read', JOB_DOCS.logs, async (request, reply) => {
    const { tenant, params, query } = request;
    if (readParameters(JOB_LOG_QUERY, query).follow) {
      return await logAnswers.send(request, reply, FOLLOW, signal => jobs.follow(tenant, params.id, signal));
    }
    return sendJsonText(reply, 'logs', await jobs.log(tenant, params.id, answerController(reply.raw).signal));
  });

  addTailRoute(app, jobs);
  addPackageRoutes(app, options.packages);
  addScheduleRoutes(app, options.schedules);
}
