import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Bed } from '../e2e/agents.ts';

const WAIT = { timeout: 60_000, interval: 50 };

export interface DurableAgentCode {
  /** Source files of the handler; `describeDurableAgents` says what it does. */
  readonly files: Readonly<Record<string, string>>;
  /** Members of `runtime_spec`. */
  readonly spec: Readonly<Record<string, unknown>>;
  /** Absent: `app.handle`. */
  readonly handler?: string;
  /** Builds the handler into the code directory. Absent: the source files are the code. */
  readonly build?: (codeDir: string) => Promise<void>;
}

/**
 * Tests durable agents against a real service. The handler adds 1 to `state.n`, appends `event.i` to
 * `state.log` and returns `n`. With `event.op` it then fails in that way. `get` returns the state, and `wake`
 * the way the agent was started.
 */
export function describeDurableAgents(name: string, { files, spec, handler, build }: DurableAgentCode): void {
  describe(name, { timeout: 240_000 }, () => {
    let bed: Bed;
    beforeAll(async () => {
      bed = await Bed.start(files);
      await build?.(bed.codeDir);
    }, 300_000);
    afterAll(async () => {
      await bed?.[Symbol.asyncDispose]();
    }, 120_000);

    const create = (agent: string, more: object = { durable: true }) =>
      bed.create(agent, handler ?? 'app.handle', spec, more);
    const count = async (id: string, i: unknown = 0) => (await bed.invoke(id, { i })).body.data;
    const stateOf = async (id: string) => (await bed.invoke(id, { op: 'get' })).body.data;
    const recordOf = async (id: string) =>
      (await bed.ask('GET', `/api/agent/${id}`)).body.instance as Record<string, unknown>;
    const restart = async (id: string) => {
      expect(await bed.ask('POST', `/api/agent/${id}/restart`)).toMatchObject({ status: 200 });
    };

    test('the state survives a restart, an exit of the sandbox and a kill of the service', async () => {
      const id = await create('survivor');
      expect(await recordOf(id)).toMatchObject({ durable: { state_bytes: 0, state_version: 0, wakes: 0 } });
      expect([await count(id, 1), await count(id, 2)]).toEqual([1, 2]);
      expect((await bed.invoke(id, { op: 'wake' })).body.data).toMatchObject({ waking: false, reason: 'created' });
      await restart(id);
      expect((await bed.invoke(id, { op: 'wake' })).body.data).toMatchObject({ waking: true, version: 2 });
      expect((await bed.invoke(id, { op: 'wake' })).body.data).toMatchObject({ waking: false });
      expect(await count(id, 3)).toBe(3);
      expect((await bed.invoke(id, { op: 'exit', i: 4 })).status).toBe(500);
      await vi.waitFor(async () => expect(await recordOf(id)).toMatchObject({ status: 'FAILED' }), WAIT);
      expect((await bed.invoke(id, { op: 'wake' })).body.data).toMatchObject({ waking: true, reason: 'crash' });
      expect(await count(id, 5)).toBe(4);
      await bed.killAndRestart();
      expect(await count(id, 6)).toBe(5);
      expect(await stateOf(id)).toEqual({ n: 5, log: [1, 2, 3, 5, 6] });
      expect(await recordOf(id)).toMatchObject({ durable: { state_version: 5, wakes: 2 } });
    });

    test.each([
      ['raise', 4002],
      ['nan', 4007],
      ['big', 4004],
      ['function', 4007],
      ['huge', 4004],
    ])('a call that ends with %s changes the state neither in memory nor on disk', async (op, code) => {
      const id = await create(`fails-${op}`);
      expect(await count(id, 1)).toBe(1);
      const failed = await bed.invoke(id, { op, i: 'lost' });
      expect(failed).toMatchObject({ status: 500, body: { message: expect.stringContaining(`code=${code}`) } });
      expect(await stateOf(id)).toEqual({ n: 1, log: [1] });
      expect(await recordOf(id)).toMatchObject({ durable: { state_version: 1 } });
      await restart(id);
      expect(await stateOf(id)).toEqual({ n: 1, log: [1] });
    });

    test('a call that times out changes nothing', async () => {
      const id = await create('late');
      expect(await count(id, 1)).toBe(1);
      const late = await bed.invoke(id, { op: 'hang', i: 'lost' }, { headers: { 'x-invoke-timeout-ms': '1000' } });
      expect(late).toMatchObject({ status: 500, body: { message: expect.stringContaining('timed out') } });
      expect(await stateOf(id)).toEqual({ n: 1, log: [1] });
      expect(await count(id, 2)).toBe(2);
    });

    test('a document that context.save() has saved stays when the call fails later', async () => {
      const id = await create('saves');
      expect((await bed.invoke(id, { op: 'save', i: 1 })).status).toBe(500);
      await restart(id);
      expect(await stateOf(id)).toEqual({ n: 1, log: [1] });
    });

    test('calls of an agent whose sandbox has ended share one start', async () => {
      const id = await create('crashed');
      await count(id);
      await bed.invoke(id, { op: 'exit' });
      await vi.waitFor(async () => expect(await recordOf(id)).toMatchObject({ status: 'FAILED' }), WAIT);
      const answers = await Promise.all(Array.from({ length: 20 }, () => count(id)));
      expect(answers.toSorted((one, other) => Number(one) - Number(other))).toEqual(
        Array.from({ length: 20 }, (_, i) => i + 2),
      );
      expect(await recordOf(id)).toMatchObject({ status: 'RUNNING', durable: { wakes: 1 } });
    });

    test('a call that changes nothing is not saved', async () => {
      const id = await create('reader');
      await count(id, 1);
      await stateOf(id);
      await stateOf(id);
      expect(await recordOf(id)).toMatchObject({ durable: { state_version: 1 } });
    });

    test('overlapping calls are saved in their order', async () => {
      const id = await create('busy');
      const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => count(id, i)));
      expect(answers.toSorted((one, other) => Number(one) - Number(other))).toEqual(
        Array.from({ length: 50 }, (_, i) => i + 1),
      );
      await bed.killAndRestart();
      const state = (await stateOf(id)) as { n: number; log: number[] };
      expect(state.n).toBe(50);
      expect(state.log.map((i, index) => answers[i] === index + 1)).toEqual(Array.from({ length: 50 }, () => true));
    });

    test('an agent without durable keeps its state in memory only and has no member durable', async () => {
      const id = await create('plain', {});
      expect([await count(id), await count(id)]).toEqual([1, 2]);
      expect(await recordOf(id)).not.toHaveProperty('durable');
      expect((await bed.invoke(id, { op: 'save' })).body.message).toContain('this agent is not durable');
      await restart(id);
      expect(await count(id)).toBe(1);
    });
  });
}
