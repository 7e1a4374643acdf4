import { Type } from 'typebox';
import { JOB_SCHEDULE, JOB_STATUSES, JOB_SUBMIT } from '../../core/job.ts';
import { describeParameters } from '../../core/parameter.ts';
import { Warnings } from '../../http/docs.ts';
import { flag } from '../query.ts';

const tags = ['job'];
export const JOB_LOG_QUERY = { follow: flag() };
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const text = (description: string) => ({ description, content: { 'text/plain': { schema: Type.String() } } });
const texts = Type.Record(Type.String(), Type.String());
const anything = Type.Record(Type.String(), Type.Unknown());
const byId = Type.Object({ id: Type.String({ description: 'The `submission_id`.' }) });
const bySchedule = Type.Object({ id: Type.String({ description: 'The `schedule_id`.' }) });
const byName = Type.Object({
  protocol: Type.Literal('gcs'),
  name: Type.String({ pattern: '^[A-Za-z0-9._+-]{1,255}$', description: 'What stands behind `gcs://`.' }),
});
const wrong = { 400: text('The request is wrong; the sentence says where.') };
const unknown = { 404: text('`Job <id> does not exist`') };
const tooManyReads = { 429: text('Too many lists and logs are being read.') };

/** Ray's client sends null for absent fields. */
const nulls = { nulls: true };

const Record = Type.Object(
  {
    type: Type.Literal('SUBMISSION'),
    job_id: Type.Null(),
    submission_id: Type.String(),
    driver_info: Type.Object({ id: Type.String(), node_ip_address: Type.String(), pid: Type.String() }),
    status: Type.Union(JOB_STATUSES.map(word => Type.Literal(word))),
    entrypoint: Type.String(),
    message: Type.String(),
    error_type: Type.String(),
    start_time: Type.String({ description: 'Milliseconds, when it was submitted.' }),
    end_time: Type.Union([Type.String(), Type.Null()]),
    metadata: texts,
    runtime_env: anything,
    driver_agent_http_address: Type.Literal(''),
    driver_node_id: Type.String(),
    driver_exit_code: Type.Union([Type.Integer(), Type.Null()]),
    attempt: Type.Integer(),
    max_attempts: Type.Integer(),
    run_time: Type.Union([Type.String(), Type.Null()], { description: 'Milliseconds, when this attempt started.' }),
    waits_for: Type.Optional(
      Type.String({ description: 'Only of one job: what it waits for in the queue of this replica.' }),
    ),
  },
  { title: 'Job' },
);

const ofSchedule = {
  schedule_id: Type.String(),
  cron: Type.String(),
  timezone: Type.String(),
  overlap: Type.Union([Type.Literal('skip'), Type.Literal('allow')]),
  job: anything,
  create_time: Type.String(),
  next_run_time: Type.Union([Type.String(), Type.Null()]),
};
const Schedule = Type.Object(ofSchedule, { title: 'JobSchedule' });
const ScheduleCreated = Type.Object({ ...ofSchedule, warnings: Warnings }, { title: 'JobSchedule' });

/** The OpenAPI documentation of the job routes. */
export const JOB_DOCS = {
  version: {
    tags,
    operationId: 'getJobApiVersion',
    summary: 'Which Ray Jobs API this is',
    response: {
      200: json('It.', Type.Object({ version: Type.String(), ray_version: Type.String(), ray_commit: Type.String() })),
    },
  },
  submit: {
    tags,
    operationId: 'submitJob',
    summary: 'Submit a job',
    description:
      'The job is on the disk when this answers. The same `submission_id` with the same body answers the job that there is.',
    body: JOB_SUBMIT.describe(nulls),
    response: {
      200: json(
        'It is queued.',
        Type.Object({ job_id: Type.String(), submission_id: Type.String(), warnings: Warnings }),
      ),
      ...wrong,
      409: text('Another job has this `submission_id`.'),
      429: text('Too many jobs wait or run.'),
    },
  },
  rerun: {
    tags,
    operationId: 'rerunJob',
    summary: 'Submit the request of a job again, as a new job',
    description:
      'The job may wait, run or be over. Its command, metadata, environment and resources are those of the first submit. Secrets have their values of now.',
    params: byId,
    response: {
      200: json('The new job is queued.', Type.Object({ job_id: Type.String(), submission_id: Type.String() })),
      400: text('The request of the job is not accepted any more; the sentence says why.'),
      ...unknown,
      409: text('A package of the job is gone.'),
      429: text('Too many jobs wait or run.'),
    },
  },
  list: {
    tags,
    operationId: 'listJobs',
    summary: 'List the jobs of the tenant, the newest first',
    response: { 200: json('They.', Type.Array(Record)), ...tooManyReads },
  },
  get: {
    tags,
    operationId: 'getJob',
    summary: 'Get a job',
    params: byId,
    response: { 200: json('The job.', Record), ...unknown },
  },
  delete: {
    tags,
    operationId: 'deleteJob',
    summary: 'Forget a job that is over, and its log',
    params: byId,
    response: {
      200: json('It is forgotten.', Type.Object({ deleted: Type.Literal(true) })),
      ...unknown,
      409: text('It is not over.'),
    },
  },
  stop: {
    tags,
    operationId: 'stopJob',
    summary: 'Stop a job',
    description: 'SIGTERM to all its processes, SIGKILL to those that are left after a while. Answers at once.',
    params: byId,
    response: {
      200: json('False: it was over already.', Type.Object({ stopped: Type.Boolean() })),
      ...unknown,
    },
  },
  logs: {
    tags,
    operationId: 'getJobLogs',
    summary: 'The log of a job, as it is now; with `follow=true` as text, on until the job is over',
    params: byId,
    querystring: describeParameters(JOB_LOG_QUERY),
    response: {
      200: {
        description: 'stdout and stderr.',
        content: {
          'application/json': { schema: Type.Object({ logs: Type.String() }) },
          'text/plain': { schema: Type.String() },
          'text/event-stream': { schema: Type.String() },
        },
      },
      ...wrong,
      ...unknown,
      ...tooManyReads,
    },
  },
  hasPackage: {
    tags,
    operationId: 'getPackage',
    summary: 'Whether a package was uploaded; with `Accept: application/octet-stream` what is in it',
    params: byName,
    response: {
      200: {
        description: 'It is there.',
        content: {
          'text/plain': { schema: Type.String() },
          'application/octet-stream': { schema: Type.Unsafe({ type: 'string', format: 'binary' }) },
        },
      },
      ...wrong,
      404: text('It is not.'),
    },
  },
  putPackage: {
    tags,
    operationId: 'putPackage',
    summary: 'Upload a package',
    params: byName,
    consumes: ['application/octet-stream'],
    body: Type.Unsafe({ type: 'string', format: 'binary' }),
    response: { 200: text('It is kept.'), ...wrong, 413: text('It is too large.') },
  },
  createSchedule: {
    tags,
    operationId: 'createJobSchedule',
    summary: 'Submit a job by the clock',
    body: JOB_SCHEDULE.describe(nulls),
    response: { 200: json('It.', ScheduleCreated), ...wrong, 409: text('There is one of this id.') },
  },
  listSchedules: {
    tags,
    operationId: 'listJobSchedules',
    summary: 'List the schedules of the tenant',
    response: { 200: json('They.', Type.Array(Schedule)) },
  },
  getSchedule: {
    tags,
    operationId: 'getJobSchedule',
    summary: 'Get a schedule',
    params: bySchedule,
    response: { 200: json('It.', Schedule), 404: text('There is none.') },
  },
  putSchedule: {
    tags,
    operationId: 'putJobSchedule',
    summary: 'Make a schedule, or replace the one of this id',
    description:
      'Replaces the schedule in one step. The former schedule stays in force if this request is refused. The last of several requests counts. Existing jobs remain; `create_time` is that of the new schedule.',
    params: bySchedule,
    body: JOB_SCHEDULE.describe(nulls),
    response: { 200: json('It.', ScheduleCreated), ...wrong },
  },
  deleteSchedule: {
    tags,
    operationId: 'deleteJobSchedule',
    summary: 'Delete a schedule; its jobs stay',
    params: bySchedule,
    response: {
      200: json('It is deleted.', Type.Object({ deleted: Type.Literal(true) })),
      404: text('There is none.'),
    },
  },
};
