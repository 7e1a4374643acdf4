import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Bed } from '../e2e/agents.ts';
import type { DurableAgentCode } from './durable-agent.ts';

const WAIT = { timeout: 60_000, interval: 50 };

/**
 * Tests sleep and alarms of durable agents against a real service. The spec names an alarm entry, which
 * appends name, payload and cause of the wake to `state.alarms`, and a sleep entry, which adds 1 to
 * `state.sleeps`. The handler is that of `describeDurableAgents`. Its other operations set, cancel and list
 * alarms, and keep the agent awake.
 */
export function describeDurableSleep(name: string, { files, spec, handler, build }: DurableAgentCode): void {
  describe(name, () => {
    let bed: Bed;
    beforeAll(async () => {
      bed = await Bed.start(files);
      await build?.(bed.codeDir);
    }, 300_000);
    afterAll(async () => {
      await bed?.[Symbol.asyncDispose]();
    }, 120_000);

    const create = (agent: string) =>
      bed.create(agent, handler ?? 'app.handle', spec, { durable: { sleep_after_seconds: 0 } });
    const call = (id: string, event: object) => bed.invoke(id, event);
    const stateOf = async (id: string) => (await call(id, { op: 'get' })).body.data;
    const sleep = (id: string) => bed.ask('POST', `/api/agent/${id}/sleep`);
    const alarmsOf = async (id: string) => (await bed.ask('GET', `/api/agent/${id}/alarms`)).body as unknown;
    const recordOf = async (id: string) =>
      (await bed.ask('GET', `/api/agent/${id}`)).body.instance as Record<string, unknown>;

    test('an agent that sleeps has no process, runs its sleep entry before, and wakes with its state', {
      timeout: 120_000,
    }, async () => {
      const id = await create('sleeper');
      expect((await call(id, { i: 1 })).body.data).toBe(1);
      expect(await sleep(id)).toMatchObject({
        status: 200,
        body: { instance: { status: 'SLEEPING', sandbox_id: '' } },
      });
      expect((await call(id, { op: 'wake' })).body.data).toEqual({ waking: true, reason: 'call', version: 2 });
      expect(await stateOf(id)).toEqual({ n: 1, log: [1], sleeps: 1 });
      await sleep(id);
      await bed.killAndRestart();
      expect(await recordOf(id)).toMatchObject({ status: 'SLEEPING' });
      expect(await stateOf(id)).toEqual({ n: 1, log: [1], sleeps: 2 });
    });

    test('an agent whose process is killed starts with its next call and its last saved state', {
      timeout: 120_000,
    }, async () => {
      const id = await create('killed');
      await call(id, { i: 1 });
      process.kill(Number((await recordOf(id)).sandbox_id), 'SIGKILL');
      await vi.waitFor(async () => expect(await recordOf(id)).toMatchObject({ status: 'FAILED' }), WAIT);
      expect((await call(id, { op: 'wake' })).body.data).toEqual({ waking: true, reason: 'crash', version: 1 });
      expect(await stateOf(id)).toEqual({ n: 1, log: [1] });
    });

    test('an alarm that an agent has set wakes it, and a call that fails sets none', { timeout: 120_000 }, async () => {
      const id = await create('alarmed');
      expect(await call(id, { op: 'raise' })).toMatchObject({ status: 500 });
      const wrong = await call(id, { op: 'wrong' });
      expect(wrong.body.message).toContain('an alarm cannot be set: cron or tz is wrong');
      expect(await alarmsOf(id)).toEqual([]);
      // The wrong alarm has ended the process, whose next start may take a moment.
      await vi.waitFor(async () => expect(await stateOf(id)).toEqual({}), WAIT);
      await call(id, { op: 'set', after: 3600, text: 'never' });
      await call(id, { op: 'cancel' });
      expect(await alarmsOf(id)).toEqual([]);
      expect(await call(id, { op: 'set', after: 3, text: 'tea' })).toMatchObject({ status: 200 });
      await sleep(id);
      await vi.waitFor(async () => expect(await alarmsOf(id)).toEqual([]), WAIT);
      expect(await stateOf(id)).toMatchObject({ n: 3, sleeps: 1, alarms: [['remind', { text: 'tea' }, 'alarm']] });
    });

    test('the alarms that code lists are the saved ones with the changes of the call', {
      timeout: 120_000,
    }, async () => {
      const id = await create('lister');
      await call(id, { op: 'set', after: 3600, text: 'tea' });
      await bed.ask('PUT', `/api/agent/${id}/alarms/nightly`, { every: 3600, payload: 'outside' });
      const nightly = { name: 'nightly', every: 3600, payload: 'outside', attempts: 0, missed: 0, failed: false };
      const mine = { name: 'mine', cron: '30 4 * * *', tz: 'UTC', payload: [1, 'ä'], max_late_seconds: 60 };
      expect((await call(id, { op: 'change and list' })).body.data).toMatchObject([mine, nightly]);
      expect(await alarmsOf(id)).toMatchObject([{ name: 'mine' }, { name: 'nightly' }]);
    });

    test('an agent that is kept awake does not sleep, also under the next service', { timeout: 120_000 }, async () => {
      const id = await create('held');
      const held = { status: 409, body: { awake_because: [expect.stringMatching(/^keep_awake \d+ s$/)] } };
      await call(id, { op: 'hold' });
      await vi.waitFor(async () => expect(await sleep(id)).toMatchObject(held), WAIT);
      await bed.killAndRestart();
      expect(await sleep(id)).toMatchObject(held);
      await call(id, { op: 'release' });
      await vi.waitFor(async () => expect(await sleep(id)).toMatchObject({ status: 200 }), WAIT);
    });
  });
}
