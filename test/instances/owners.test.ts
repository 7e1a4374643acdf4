import { expect, test } from 'vitest';
import { TENANT } from '../agents/harness.ts';
import { Everybody } from './everybody.ts';

test('agents, functions, jobs and builds are recorded in one table while their sandboxes run', async () => {
  await using bed = await Everybody.open();
  bed.driver.buildsEnd = false;
  const agent = await bed.createAgent();
  const fn = await bed.launchFunction();
  const job = await bed.submitJob();
  const { instanceId } = await bed.untilJob(job, 'RUNNING');
  await bed.submitJob(['left-pad']);
  await expect.poll(() => bed.driver.runningIds.length).toBe(4);
  const rows = await bed.rows();
  const kinds = Object.fromEntries(rows.map(({ id, owner }) => [owner.kind, id]));
  expect(kinds).toEqual({ agent, function: fn.id, job: instanceId, build: expect.any(String) });
  await bed.untilInOrder();
  await bed.server.agents.delete(TENANT, agent, 0);
  await fn.stop();
  bed.driver.kill(instanceId, { code: 0, signal: null });
  bed.driver.kill(kinds.build as string, { code: 0, signal: null });
  await bed.untilJob(job, 'SUCCEEDED');
  await bed.untilJob('j3', 'RUNNING');
  await bed.untilInOrder();
  expect((await bed.rows()).map(({ owner }) => owner.kind)).toEqual(['job']);
});
