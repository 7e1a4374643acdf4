import type { FastifyInstance } from 'fastify';
import type { JobSchedules } from '../jobs/schedules.ts';
import { JOB_DOCS } from './jobs-docs.ts';

/** Jobs by the clock: `/api/job_schedules`. */
export function addScheduleRoutes(app: FastifyInstance, schedules: JobSchedules): void {
  const url = '/api/job_schedules';

  app.post(url, { config: { access: 'write', docs: JOB_DOCS.createSchedule } }, async request =>
    schedules.create(request.tenant, request.body as Buffer | undefined),
  );

  app.get(url, { config: { access: 'read', docs: JOB_DOCS.listSchedules } }, async request =>
    schedules.list(request.tenant),
  );

  app.get<{ Params: { id: string } }>(
    `${url}/:id`,
    { config: { access: 'read', docs: JOB_DOCS.getSchedule } },
    async ({ tenant, params }) => schedules.get(tenant, params.id),
  );

  app.delete<{ Params: { id: string } }>(
    `${url}/:id`,
    { config: { access: 'write', docs: JOB_DOCS.deleteSchedule } },
    async ({ tenant, params }) => {
      await schedules.delete(tenant, params.id);
      return { deleted: true };
    },
  );
}
