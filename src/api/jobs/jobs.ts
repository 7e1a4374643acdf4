import type {} from '@fastify/websocket';
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify';
import type { WebSocket } from 'ws';
import { deadlineExceeded, internal, invalidRequest, messageOf, notFound, ServiceError } from '../../core/error.ts';
import { JOB_SCHEDULE, JOB_SUBMIT, jobRecord, readJobSubmission } from '../../core/job.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { answerController } from '../../http/access/caller.ts';
import { sendJsonList, sendJsonText } from '../../http/access/masking.ts';
import { retryAfter, withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import type { CostlyRead, LivesWith, RouteDocs } from '../../http/route-config.ts';
import type { JobService } from '../../jobs/create-jobs.ts';
import type { Jobs } from '../../jobs/jobs.ts';
import type { JobPackages } from '../../jobs/packages.ts';
import { type JobSchedules, readSchedule } from '../../jobs/schedules.ts';
import { endsWithin } from '../../lib/deadline.ts';
import { send } from '../../lib/socket-stream.ts';
import { frontendErrors } from '../errors.ts';
import { LIVES_WITH_JOB, LIVES_WITH_JOB_LOG, LIVES_WITH_WORKER } from '../lives-with.ts';
import { LogAnswers } from '../log-answer.ts';
import { CLOSE, close, keepAlive, SocketLives } from '../web-socket.ts';
import { JOB_DOCS, JOB_LOG_QUERY } from './docs.ts';

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
  [JOB_DOCS.rerun, LIVES_WITH_WORKER],
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

  add('GET', '/api/jobs/:id', 'read', JOB_DOCS.get, async ({ tenant, params }) => {
    const job = await jobs.get(tenant, params.id);
    const reason = jobs.waitReason(job);
    return { ...jobRecord(job), ...(reason !== null && { waits_for: reason }) };
  });

  add('DELETE', '/api/jobs/:id', 'write', JOB_DOCS.delete, async ({ tenant, params }) => {
    await jobs.delete(tenant, params.id);
    return { deleted: true };
  });

  add('POST', '/api/jobs/:id/stop', 'write', JOB_DOCS.stop, async ({ tenant, params }) => ({
    stopped: await jobs.stop(tenant, params.id),
  }));

  add('POST', '/api/jobs/:id/rerun', 'write', JOB_DOCS.rerun, async ({ tenant, params }) => {
    const { id } = await jobs.rerun(tenant, params.id);
    return { job_id: id, submission_id: id };
  });

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

const TEXT = 'text/plain; charset=utf-8';

/**
 * Answers errors of these routes with a plain sentence instead of JSON, because the Ray client prints the
 * body.
 * The status is the `number` of a `ServiceError` if it has one.
 */
export function answerErrorsAsText(scope: FastifyInstance): void {
  scope.setErrorHandler((error, request, reply) => {
    const known = asServiceError(error, request.traceId);
    if (known === null) throw error;
    request.failure = known;
    if (known.retryAfterSeconds !== undefined) reply.header('Retry-After', retryAfter(known.retryAfterSeconds));
    const status = known.number ?? frontendErrors(known).status;
    return reply.code(status).type(TEXT).send(known.message);
  });
}

/** Converts an error to a `ServiceError`. null: the entry answers the error. */
function asServiceError(error: unknown, traceId: string): ServiceError | null {
  if (error instanceof ServiceError) return error;
  const status = (error as { statusCode?: number }).statusCode;
  if (status !== undefined && status < 500) return null;
  return internal(`internal error: the log has it under trace id ${traceId}`, { cause: error });
}

interface ByName {
  Params: { protocol: string; name: string };
}

const ARCHIVE = /\bapplication\/(octet-stream|zip|gzip)\b/;
/**
 * Adds the routes for uploaded files of jobs. The entry bounds the time of an upload.
 * `GET` answers with an empty body if the package exists, as Ray's client expects. A client that accepts
 * `application/octet-stream` gets the content.
 */
export function addPackageRoutes(app: FastifyInstance, packages: JobPackages): void {
  app.register(async scope => {
    // The handler streams the body to the disk, so that the whole body is never in memory.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));

    for (const end of ['', '/']) {
      const url = `/api/packages/:protocol/:name${end}`;
      const docs = end === '' ? { get: JOB_DOCS.hasPackage, put: JOB_DOCS.putPackage } : {};
      scope.get<ByName>(
        url,
        { config: { access: 'read', ...(docs.get && { docs: docs.get }) } },
        async (request, reply) => {
          const { tenant, params } = request;
          checkProtocol(request);
          const isAsked = !ARCHIVE.test(request.headers.accept ?? '');
          if (isAsked && (await packages.has(tenant, params.name))) return reply.code(200).send('');
          const found = isAsked ? null : await packages.find(tenant, params.name);
          if (!found) throw notFound(`Package gcs://${params.name} does not exist`);
          return reply
            .type('application/octet-stream')
            .header('Content-Length', found.bytes)
            .send(await packages.read(tenant, params.name));
        },
      );

      scope.put<ByName>(
        url,
        { config: { access: 'write', livesWith: LIVES_WITH_WORKER, ...(docs.put && { docs: docs.put }) } },
        async (request, reply) => {
          try {
            checkProtocol(request);
            if (Number(request.headers['content-length'] ?? 0) > packages.maxBytes) throw packages.tooLarge();
            await packages.write(request.tenant, request.params.name, request.raw);
            return reply.code(200).send('');
          } finally {
            // Reads and discards a refused body, so that the client can read the reason.
            request.raw.resume();
          }
        },
      );
    }
  });
}

function checkProtocol(request: FastifyRequest<ByName>): void {
  const { protocol } = request.params;
  if (protocol !== 'gcs')
    throw invalidRequest(`packages are kept under gcs, not under ${JSON.stringify(protocol.slice(0, 40))}`);
}

const PATH = '/api/job_schedules';

/**
 * Adds the routes of scheduled jobs: `/api/job_schedules`, with and without a slash at the end of each path.
 */
export function addScheduleRoutes(app: FastifyInstance, schedules: JobSchedules): void {
  for (const end of ['', '/']) {
    // Only the form without a slash is documented.
    const options = (access: 'read' | 'write', docs: RouteDocs) => ({
      config: { access, ...(end === '' ? { docs } : {}) },
    });

    app.post(`${PATH}${end}`, options('write', JOB_DOCS.createSchedule), async request => {
      const schedule = readRequest(request, JOB_SCHEDULE, readSchedule);
      return withWarnings(await schedules.create(request.tenant, schedule), request.warnings);
    });

    app.get(`${PATH}${end}`, options('read', JOB_DOCS.listSchedules), async request => schedules.list(request.tenant));

    app.get<{ Params: { id: string } }>(
      `${PATH}/:id${end}`,
      options('read', JOB_DOCS.getSchedule),
      async ({ tenant, params }) => schedules.get(tenant, params.id),
    );

    app.put<{ Params: { id: string } }>(`${PATH}/:id${end}`, options('write', JOB_DOCS.putSchedule), async request => {
      const schedule = readRequest(request, JOB_SCHEDULE, body => readSchedule(body, request.params.id));
      return withWarnings(await schedules.put(request.tenant, schedule), request.warnings);
    });

    app.delete<{ Params: { id: string } }>(
      `${PATH}/:id${end}`,
      options('write', JOB_DOCS.deleteSchedule),
      async ({ tenant, params }) => {
        await schedules.delete(tenant, params.id);
        return { deleted: true };
      },
    );
  }
}

// Imported for its additions to the types of routes.

/** Largest frame. The client prints each frame as it arrives. */
const MAX_FRAME_CHARS = 64 * 1024;

/**
 * Adds the WebSocket `/api/jobs/{id}/logs/tail`, which sends the log from its beginning as text frames.
 * Closes the socket with 1000 once the job has ended and its final state is readable. Refuses the handshake
 * for an unknown job (404).
 */
export function addTailRoute(app: FastifyInstance, jobs: Jobs): void {
  const lives = new SocketLives(app);

  for (const url of ['/api/jobs/:id/logs/tail', '/api/jobs/:id/logs/tail/']) {
    app.route<{ Params: { id: string } }>({
      method: 'GET',
      url,
      config: { access: 'read', longLived: true, costly: 'follow', livesWith: LIVES_WITH_JOB_LOG },
      exposeHeadRoute: false,
      preValidation: async request => {
        await jobs.get(request.tenant, request.params.id);
      },
      handler: async (_request, reply) => {
        reply.header('Upgrade', 'websocket').header('Connection', 'Upgrade');
        throw invalidRequest('the log is followed over a WebSocket: the request must ask for an upgrade', {
          number: 426,
        });
      },
      wsHandler: (socket, request) => void serve(socket, request, jobs, lives.open(request).signal),
    });
  }
}

type TailRequest = FastifyRequest<{ Params: { id: string } }>;

async function serve(socket: WebSocket, request: TailRequest, jobs: Jobs, signal: AbortSignal): Promise<void> {
  // A job may print nothing for any time, so the connection has no idle limit.
  keepAlive(socket, null);
  try {
    // A chunk may end inside a character.
    const decoder = new TextDecoder();
    for await (const chunk of await jobs.follow(request.tenant, request.params.id, signal)) {
      await sendText(socket, decoder.decode(chunk, { stream: true }));
    }
    if (signal.aborted) return;
    await sendText(socket, decoder.decode());
    close(socket, CLOSE.normal);
  } catch (error) {
    if (signal.aborted) return;
    request.failure = `the log was interrupted: ${messageOf(error)}`;
    close(socket, CLOSE.fault, 'the log was interrupted');
  }
}

/**
 * Sends a text in frames, each after the previous one was accepted.
 * Terminates the connection if the reader accepts no frame for `LIMITS.tailIdleMs`.
 */
async function sendText(socket: WebSocket, text: string): Promise<void> {
  for (let at = 0; at < text.length; at += MAX_FRAME_CHARS) {
    const isTaken = await endsWithin(send(socket, text.slice(at, at + MAX_FRAME_CHARS)), LIMITS.tailIdleMs);
    if (isTaken) continue;
    socket.terminate();
    throw deadlineExceeded(`the client read nothing for ${LIMITS.tailIdleMs / 1000} s`);
  }
}
