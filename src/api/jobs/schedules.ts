import type { FastifyInstance } from 'fastify';
import { JOB_SCHEDULE } from '../../core/job.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { type JobSchedules, readSchedule } from '../../jobs/schedules.ts';
import { JOB_DOCS } from './docs.ts';

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
