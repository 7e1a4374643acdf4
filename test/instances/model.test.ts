import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { ServiceError } from '../../src/core/error.ts';
import { callOf, specOf, TENANT } from '../agents/harness.ts';
import { propertyRuns } from '../parts/property-runs.ts';
import { Everybody } from './everybody.ts';

/** An agent whose create was acknowledged. */
interface Agent {
  readonly id: string;
  readonly name: string;
  /** `unknown`: an interrupted operation may or may not have had an effect. */
  state: 'running' | 'failed' | 'unknown';
  /** Calls that its sandbox has counted; undefined: not known. */
  calls: number | undefined;
  /** True once a delete was requested, which may have been interrupted. */
  isLeaving: boolean;
}

const OPERATIONS = ['create', 'create twice', 'repeat', 'call', 'exit', 'delete', 'restart', 'next server'] as const;

const STEP = fc.record({
  operation: fc.constantFrom(...OPERATIONS),
  which: fc.nat(5),
  /** Step of the server, counted from the operation, before which the server is killed. */
  killedAt: fc.option(fc.nat(6), { freq: 2 }),
});

interface Metrics {
  readonly created: () => undefined;
  readonly exited: () => void;
}

class Model {
  readonly bed: Everybody;
  readonly agents = new Map<string, Agent>();
  readonly deleted = new Set<string>();
  /** Sandboxes that ended by themselves, and ends that the servers reported. */
  exits = 0;
  told = 0;
  #names = 0;

  static async open(): Promise<Model> {
    const model: { told: number }[] = [];
    const metrics = {
      created: () => undefined,
      exited: () => {
        for (const one of model) one.told += 1;
      },
    };
    const bed = await Everybody.open({ metrics });
    bed.driver.handlers.set('count', (_event, { state }) => {
      const count = ((state.get('count') as number | undefined) ?? 0) + 1;
      state.set('count', count);
      return count;
    });
    const opened = new Model(bed, metrics);
    model.push(opened);
    return opened;
  }

  readonly #metrics: Metrics;

  private constructor(bed: Everybody, metrics: Metrics) {
    this.bed = bed;
    this.#metrics = metrics;
  }

  async take(operation: (typeof OPERATIONS)[number], which: number, killedAt: number | null): Promise<void> {
    const { steps } = this.bed.server;
    const first = steps.taken.length;
    steps.fateOf = index => (killedAt !== null && index === first + killedAt ? 'kills' : 'passes');
    const known = [...this.agents.values()].filter(({ isLeaving }) => !isLeaving);
    const agent = known[which % (known.length || 1)];
    const done = this.#act(operation, agent).catch(error => {
      if (!steps.isDead) expect(error).toBeInstanceOf(ServiceError);
    });
    await Promise.race([done, steps.died]);
    steps.fateOf = () => 'passes';
    if (steps.isDead) {
      steps.bury();
      await done;
      await this.#nextServer();
    }
  }

  /** Waits until all parts agree, and compares them with the answers that clients have received. */
  async check(): Promise<void> {
    await this.bed.untilInOrder();
    const rows = await this.bed.rows();
    expect(new Set(rows.map(({ spec }) => JSON.parse(spec).name)).size).toBe(rows.length);
    for (const id of this.deleted) expect(rows.find(row => row.id === id)).toBeUndefined();
    for (const agent of this.agents.values()) {
      const row = rows.find(({ id }) => id === agent.id);
      if (agent.isLeaving && row === undefined) this.agents.delete(agent.id);
      if (agent.isLeaving || agent.state === 'unknown') continue;
      expect({ name: agent.name, status: row?.status }).toEqual({
        name: agent.name,
        status: agent.state === 'running' ? 'RUNNING' : 'FAILED',
      });
    }
    expect(this.told).toBeLessThanOrEqual(this.exits);
  }

  async #act(operation: (typeof OPERATIONS)[number], agent: Agent | undefined): Promise<void> {
    switch (operation) {
      case 'create':
        return await this.#create(`m${++this.#names}`, 1);
      case 'create twice':
        return await this.#create(`m${++this.#names}`, 2);
      case 'repeat':
        return agent && (await this.#repeat(agent));
      case 'call':
        return agent && (await this.#call(agent));
      case 'exit':
        return agent && (await this.#exit(agent));
      case 'delete':
        return agent && (await this.#delete(agent));
      case 'restart':
        return agent && (await this.#restart(agent));
      case 'next server':
        await this.bed.server.close();
        return await this.#nextServer();
    }
  }

  async #nextServer(): Promise<void> {
    await this.bed.startServer({ metrics: this.#metrics });
  }

  async #create(name: string, times: number): Promise<void> {
    const idempotency = { key: name, requestHash: name };
    const spec = specOf(name, { handler: 'count' });
    const create = async (isRepeatable: boolean) => {
      const { agents } = this.bed.server;
      const { id } = await agents.create({ spec, ...(isRepeatable && { idempotency }) });
      const known = this.agents.get(id);
      if (known === undefined) this.agents.set(id, { id, name, state: 'running', calls: 0, isLeaving: false });
      return id;
    };
    const made = await Promise.allSettled(Array.from({ length: times * 2 }, (_, n) => create(n < times)));
    const ids = new Set(made.flatMap(result => (result.status === 'fulfilled' ? [result.value] : [])));
    expect(ids.size).toBeLessThanOrEqual(1);
    const failed = made.find(result => result.status === 'rejected');
    if (ids.size === 0 && failed !== undefined) throw failed.reason;
  }

  /** Repeats the create of an agent, whose name is taken. */
  async #repeat({ id, name }: Agent): Promise<void> {
    const spec = specOf(name, { handler: 'count' });
    await expect(this.bed.server.agents.create({ spec })).rejects.toMatchObject({ body: { instance_id: id } });
  }

  async #call(agent: Agent): Promise<void> {
    const { calls } = agent;
    agent.calls = undefined;
    const outcome = await this.bed.server.agents.invoke(TENANT, agent.id, callOf());
    if (!outcome.ok) throw new Error(outcome.text);
    const count = Number(outcome.data.toString());
    if (calls !== undefined && agent.state === 'running') expect(count).toBe(calls + 1);
    agent.calls = count;
  }

  async #exit(agent: Agent): Promise<void> {
    if (!this.bed.driver.runningIds.includes(agent.id)) return;
    const { steps } = this.bed.server;
    const before = this.told;
    this.exits += 1;
    agent.state = 'failed';
    this.bed.driver.kill(agent.id);
    await vi.waitFor(async () => {
      // A server that was killed writes no more.
      if (steps.isDead) return;
      const row = (await this.bed.rows()).find(({ id }) => id === agent.id);
      expect([row?.status, this.told]).toEqual(['FAILED', before + 1]);
    });
  }

  async #delete(agent: Agent): Promise<void> {
    agent.isLeaving = true;
    await this.bed.server.agents.delete(TENANT, agent.id, 0);
    this.agents.delete(agent.id);
    this.deleted.add(agent.id);
  }

  async #restart(agent: Agent): Promise<void> {
    agent.state = 'unknown';
    agent.calls = undefined;
    await this.bed.server.agents.restart(TENANT, agent.id);
    agent.state = 'running';
    agent.calls = 0;
  }
}

test('no agent is lost, doubled or left behind by any history of operations and kills between writes', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(STEP, { minLength: 1, maxLength: 12, size: 'max' }), async steps => {
      const model = await Model.open();
      await using _ = model.bed;
      for (const { operation, which, killedAt } of steps) {
        await model.take(operation, which, killedAt);
        await model.check();
      }
    }),
    { numRuns: propertyRuns(60), interruptAfterTimeLimit: 20_000, endOnFailure: true },
  );
});
