import { afterEach, expect, test, vi } from 'vitest';
import { unavailable } from '../../src/core/error.ts';
import { NO_CALLS_KEPT } from '../../src/core/finished-call.ts';
import { readFunctionCallHeaders } from '../../src/core/function-call.ts';
import { FunctionInvoker } from '../../src/functions/function-invoker.ts';
import { type GroupKey, SYSTEM_CLOCK } from '../../src/functions/policy.ts';
import { TENANT } from '../agents/harness.ts';
import { FakeCatalog, functionDefinition, URN } from '../functions/harness.ts';
import { Everybody, type Server } from './everybody.ts';

/** Machine with capacity for four agents, two jobs or four instances of functions. */
const SMALL = {
  machine: { cpuMillis: 1_000_000, memoryMb: 512, processes: 1_000_000 },
  overcommit: { cpu: 1, memory: 1, processes: 1 },
};

const memoryOf = ({ ledger }: Server) =>
  Object.fromEntries(Object.entries(ledger.reservations.by).map(([kind, { memoryMb }]) => [kind, memoryMb]));

let services: FunctionInvoker[] = [];
afterEach(async () => {
  for (const service of services) await service.close(0);
  services = [];
});

/** Returns a function service over the same instances and the same ledger. */
async function serviceOf(bed: Everybody): Promise<FunctionInvoker> {
  const { ledger, starter } = bed.server;
  const sizeOf = ({ cpuMillis, memoryMb }: GroupKey) => ({ cpuMillis, memoryMb, processes: 64 });
  const catalog = new FakeCatalog();
  catalog.put(functionDefinition({ handler: 'echo', code: { storage: 'local', path: bed.directory } }));
  const service = new FunctionInvoker({
    catalog,
    launcher: starter,
    clock: SYSTEM_CLOCK,
    capacity: {
      maxInstances: 100,
      maxInstancesPerTenant: 100,
      machine: {
        isLargeEnough: key => ledger.isWithinMachine(key),
        isFull: key => !ledger.fits(sizeOf(key)),
        reserve: key => ledger.reserve('function', sizeOf(key)),
        release: key => ledger.release('function', sizeOf(key)),
        onReleased: listener => ledger.onRelease(listener),
      },
    },
    maxWaitMs: 30_000,
    maxWaitingPerTenant: 100,
    openCallBytes: ledger.openCallBytes,
    callSink: NO_CALLS_KEPT,
    log: { info: () => undefined, warn: () => undefined, error: () => undefined },
  });
  services.push(service);
  await service.start();
  return service;
}

function invoke(service: FunctionInvoker) {
  const call = { header: { traceId: 't', traceparent: '', requestId: 'r' }, body: Buffer.from('7') };
  return service.invoke({ urn: URN, tenant: null, headers: readFunctionCallHeaders({}), call });
}

test('an agent that does not fit is rejected with the holders of the capacity and leaves no residue', async () => {
  await using bed = await Everybody.open({ machine: SMALL });
  for (let count = 0; count < 4; count++) await bed.createAgent();
  await expect(bed.createAgent()).rejects.toMatchObject({
    code: 'resource_exhausted',
    message: expect.stringContaining(
      'not have enough free memory: 128 of 512 MiB are requested; reserved are agents 512',
    ),
    retryAfterSeconds: 5,
  });
  await bed.server.instances.flushed();
  expect((await bed.rows()).map(({ status }) => status)).toEqual(Array.from({ length: 4 }, () => 'RUNNING'));
  await bed.untilInOrder();
});

test('a job waits in its queue while agents fill the machine, and starts when agents are deleted', async () => {
  await using bed = await Everybody.open({ machine: SMALL });
  const agents = [];
  for (let count = 0; count < 4; count++) agents.push(await bed.createAgent());
  const job = await bed.submitJob();
  await bed.server.agents.delete(TENANT, agents[0] as string, 0);
  expect((await bed.job(job)).status).toBe('PENDING');
  expect(memoryOf(bed.server)).toEqual({ agent: 384, function: 0, job: 0, build: 0 });
  await bed.server.agents.delete(TENANT, agents[1] as string, 0);
  const { instanceId } = await bed.untilJob(job, 'RUNNING');
  expect(memoryOf(bed.server)).toEqual({ agent: 256, function: 0, job: 256, build: 0 });
  await expect(bed.createAgent()).rejects.toThrow('reserved are agents 256, jobs 256');
  bed.driver.kill(instanceId, { code: 0, signal: null });
  await bed.untilJob(job, 'SUCCEEDED');
  await vi.waitFor(() => expect(memoryOf(bed.server).job).toBe(0));
  await bed.createAgent();
});

test('a waiting job starts when an agent exits', async () => {
  await using bed = await Everybody.open({ machine: SMALL });
  const agents = [];
  for (let count = 0; count < 3; count++) agents.push(await bed.createAgent());
  const job = await bed.submitJob();
  expect((await bed.job(job)).status).toBe('PENDING');
  bed.driver.kill(agents[0] as string);
  await bed.untilJob(job, 'RUNNING');
});

test("a function's call waits for capacity and is served when an agent is deleted", async () => {
  await using bed = await Everybody.open({ machine: SMALL });
  const service = await serviceOf(bed);
  const agents = [];
  for (let count = 0; count < 4; count++) agents.push(await bed.createAgent());
  let isServed = false;
  const call = invoke(service).finally(() => {
    isServed = true;
  });
  await vi.waitFor(() => expect(bed.server.ledger.openCallBytes.taken).toBeGreaterThan(0));
  await bed.server.instances.reconcile();
  expect(isServed).toBe(false);
  expect(bed.driver.starts).toHaveLength(4);
  await bed.server.agents.delete(TENANT, agents[0] as string, 0);
  const { outcome } = await call;
  expect(outcome.ok && outcome.data.toString()).toBe('7');
  expect(memoryOf(bed.server)).toEqual({ agent: 384, function: 128, job: 0, build: 0 });
  await service.close(0);
});

test('an agent keeps its capacity in a restart while a call waits, and releases it when the restart fails', async () => {
  await using bed = await Everybody.open({ machine: SMALL });
  const service = await serviceOf(bed);
  const agents: string[] = [];
  for (let count = 0; count < 4; count++) agents.push(await bed.createAgent());
  const call = invoke(service);
  await vi.waitFor(() => expect(bed.server.ledger.openCallBytes.taken).toBeGreaterThan(0));
  for (const id of agents) {
    expect(await bed.server.agents.restart(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 1 });
  }
  expect(memoryOf(bed.server)).toEqual({ agent: 512, function: 0, job: 0, build: 0 });
  // The start of the agent fails. The start of the function's instance gets the capacity and succeeds.
  const start = vi.spyOn(bed.driver, 'start').mockRejectedValueOnce(unavailable('not this one'));
  await expect(bed.server.agents.restart(TENANT, agents[0] as string)).rejects.toThrow('not this one');
  expect(start).toHaveBeenCalled();
  expect((await call).outcome.ok).toBe(true);
  expect(memoryOf(bed.server)).toEqual({ agent: 384, function: 128, job: 0, build: 0 });
  await expect(bed.server.agents.restart(TENANT, agents[0] as string)).rejects.toMatchObject({
    code: 'resource_exhausted',
  });
  expect(memoryOf(bed.server)).toEqual({ agent: 384, function: 128, job: 0, build: 0 });
  await service.close(0);
});

test('a build counts towards capacity in addition to its waiting job until the build ends', async () => {
  await using bed = await Everybody.open({ machine: SMALL });
  bed.driver.buildsEnd = false;
  const job = await bed.submitJob(['left-pad']);
  await vi.waitFor(() => expect(bed.driver.runningIds).toHaveLength(1));
  expect(memoryOf(bed.server)).toEqual({ agent: 0, function: 0, job: 256, build: 256 });
  await expect(bed.createAgent()).rejects.toThrow('reserved are jobs 256, builds of environments 256');
  bed.driver.kill(bed.driver.runningIds[0] as string, { code: 0, signal: null });
  await bed.untilJob(job, 'RUNNING');
  expect(memoryOf(bed.server)).toEqual({ agent: 0, function: 0, job: 256, build: 0 });
});

test('adopted instances count towards capacity after a restart, even above the limits', async () => {
  await using bed = await Everybody.open();
  for (let count = 0; count < 6; count++) await bed.createAgent();
  await bed.untilJob(await bed.submitJob(), 'RUNNING');
  await bed.server.close();
  await bed.startServer({ machine: SMALL });
  expect(memoryOf(bed.server)).toEqual({ agent: 768, function: 0, job: 256, build: 0 });
  await expect(bed.createAgent()).rejects.toMatchObject({ code: 'resource_exhausted' });
});
