import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { ServiceError } from '../../src/core/error.ts';
import type { FunctionInstance } from '../../src/functions/function-instance.ts';
import { TENANT } from '../agents/harness.ts';
import { Everybody } from './everybody.ts';

/** Operations of owners and events that affect them; `n` selects the target. */
const STEPS: Readonly<Record<string, (model: Model, n: number) => Promise<unknown>>> = {
  create: ({ bed }) => bed.createAgent(),
  delete: (model, n) => model.withAgent(n, id => model.bed.server.agents.delete(TENANT, id, 0)),
  restart: (model, n) => model.withAgent(n, id => model.bed.server.agents.restart(TENANT, id)),
  call: (model, n) => model.withAgent(n, id => model.bed.call(id)),
  launch: async model => void model.functions.push(await model.bed.launchFunction()),
  stop: async (model, n) => {
    const known = [...model.functions, ...model.bed.server.adopted];
    await known[n % (known.length || 1)]?.stop();
  },
  submit: ({ bed }) => bed.submitJob(),
  build: ({ bed }, n) => bed.submitJob([`package-${n}`]),
  exit: async ({ bed: { driver } }, n) => {
    const id = driver.runningIds[n % (driver.runningIds.length || 1)];
    if (id !== undefined) driver.kill(id, { code: n % 2, signal: null });
  },
  drop: async ({ bed: { driver } }, n) => {
    const id = driver.runningIds[n % (driver.runningIds.length || 1)];
    if (id !== undefined) driver.dropConnections(id);
  },
  'a stop fails': async ({ bed: { driver } }) => void driver.faults.stopFailures++,
  'a removal fails': async ({ bed: { driver } }) => void driver.faults.removeFailures++,
  'a write fails': async ({ bed: { server } }, n) => {
    const at = server.steps.taken.length + n;
    server.steps.fateOf = (index, name) => (index === at && name.startsWith('write') ? 'fails' : 'passes');
  },
  look: ({ bed }) => bed.server.instances.reconcile(),
};

class Model {
  readonly bed: Everybody;
  readonly functions: FunctionInstance[] = [];

  constructor(bed: Everybody) {
    this.bed = bed;
  }

  async withAgent(n: number, act: (id: string) => Promise<unknown>): Promise<void> {
    const agents = (await this.bed.rows()).filter(({ owner }) => owner.kind === 'agent');
    const agent = agents[n % (agents.length || 1)];
    if (agent !== undefined) await act(agent.id);
  }

  /** Runs one step; returns early when its server is killed first. */
  async take(name: string, n: number): Promise<void> {
    const { steps } = this.bed.server;
    const step = (STEPS[name] as (typeof STEPS)[string])(this, n).catch(error => {
      // A rejection or a failed write is allowed; any other error is a fault of the service.
      if (!steps.isDead) expect(error).toBeInstanceOf(ServiceError);
    });
    await Promise.race([step, steps.died]);
  }
}

const STEP = fc.record({ name: fc.constantFrom(...Object.keys(STEPS)), n: fc.nat(10) });
/** Concurrent steps in a round and the fate of the server afterwards. */
const ROUND = fc.record({
  steps: fc.array(STEP, { minLength: 1, maxLength: 6, size: 'max' }),
  end: fc.constantFrom('stays', 'stays', 'stays', 'stays', 'restarts', 'is killed', 'is killed at once'),
  turns: fc.nat(30),
});
const ROUNDS = fc.array(ROUND, { minLength: 1, maxLength: 6, size: 'max' });
type Round = typeof ROUND extends fc.Arbitrary<infer T> ? T : never;

test('records, sandboxes and ledger agree after any history of owners and server failures', async () => {
  let last = Promise.resolve();
  await fc.assert(
    fc.asyncProperty(ROUNDS, rounds => {
      last = agreeAfter(rounds);
      return last;
    }),
    { numRuns: 25, interruptAfterTimeLimit: 20_000, endOnFailure: true },
  );
  // fast-check may interrupt the last case at the time limit; this waits for the end of the case.
  await last;
});

async function agreeAfter(rounds: readonly Round[]): Promise<void> {
  await using bed = await Everybody.open();
  const model = new Model(bed);
  for (let count = 0; count < 3; count++) await bed.createAgent();
  for (const { steps, end, turns } of rounds) {
    const taken = Promise.all(steps.map(({ name, n }) => model.take(name, n)));
    if (end === 'is killed at once') for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
    else await taken;
    if (end === 'stays') continue;
    if (end === 'restarts') await bed.server.close();
    else bed.server.steps.kill();
    await taken;
    model.functions.splice(0);
    await bed.startServer();
  }
  Object.assign(bed.driver.faults, { stopFailures: 0, removeFailures: 0 });
  bed.server.steps.fateOf = () => 'passes';
  await bed.untilInOrder();
  await vi.waitFor(async () => {
    const running = (await bed.rows()).filter(({ status }) => status === 'RUNNING');
    const memoryOf = (kind: string) =>
      running.filter(({ owner }) => owner.kind === kind).reduce((sum, { memoryMb }) => sum + memoryMb, 0);
    const { agent, job, build } = bed.server.ledger.reservations.by;
    expect([agent.memoryMb, job.memoryMb, build.memoryMb]).toEqual([memoryOf('agent'), memoryOf('job'), 0]);
  });
}
