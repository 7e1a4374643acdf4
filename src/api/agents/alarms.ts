import type { FastifyInstance } from 'fastify';
import type { AgentAlarmStore } from '../../agents/contract.ts';
import { ALARM, alarmNameProblem, alarmView, readAlarm } from '../../core/alarm.ts';
import { invalidRequest } from '../../core/error.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { newRequestId } from '../../lib/random-ids.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { ALARM_DOCS } from './sleep-docs.ts';

interface ById {
  Params: { instanceId: string };
}

interface ByName {
  Params: { instanceId: string; name: string };
}

/** Adds the routes of the alarms of an agent. Payloads are in no answer: viewers may read these. */
export function addAlarmRoutes(app: FastifyInstance, alarms: AgentAlarmStore): void {
  app.get<ById>(
    '/api/agent/:instanceId/alarms',
    { config: { access: 'read', docs: ALARM_DOCS.list } },
    async ({ tenant, params }) => (await alarms.list(tenant, params.instanceId)).map(alarmView),
  );

  const config = { access: 'write', livesWith: LIVES_WITH_AGENT } as const;
  const path = '/api/agent/:instanceId/alarms/:name';

  app.put<ByName>(path, { config: { ...config, docs: ALARM_DOCS.set } }, async request => {
    const { instanceId, name } = request.params;
    const problem = alarmNameProblem(name);
    if (problem !== undefined) throw invalidRequest(`invalid path: the name of an alarm ${problem}`);
    const alarm = readRequest(request, ALARM, body => readAlarm(body, name, newRequestId(), Date.now()));
    await alarms.set(request.tenant, instanceId, alarm);
    return withWarnings({ code: 200, alarm: alarmView(alarm) }, request.warnings);
  });

  app.delete<ByName>(path, { config: { ...config, docs: ALARM_DOCS.cancel } }, async ({ tenant, params }) => {
    await alarms.cancel(tenant, params.instanceId, params.name);
    return { code: 200, status: 'cancelled' };
  });
}
