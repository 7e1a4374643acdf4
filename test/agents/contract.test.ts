import { expect, vi } from 'vitest';
import { MemoryInstances } from '../http/memory-instances.ts';
import { describeAgents } from '../suites/agent-instances.ts';
import { Harness, TENANT } from './harness.ts';

describeAgents('over a driver', async () => {
  const harness = await Harness.open();
  return {
    agents: harness.agents,
    async end(id) {
      harness.driver.kill(id, { code: 3, signal: null });
      await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED'));
    },
    [Symbol.asyncDispose]: () => harness[Symbol.asyncDispose](),
  };
});

describeAgents('in memory', async () => {
  const agents = new MemoryInstances();
  return {
    agents,
    async end(id) {
      const instance = await agents.get(TENANT, id);
      agents.put({ ...instance, status: 'FAILED', statusReason: 'instance exited: exit code 3' });
    },
    async [Symbol.asyncDispose]() {},
  };
});
