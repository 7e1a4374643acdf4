import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeDriver } from '../../test/fakes/fake-driver.ts';
import { functionDefinition } from '../../test/functions/harness.ts';
import { removalsIn } from '../../test/parts/removals.ts';
import { CodeStore } from '../code/code-store.ts';
import { unavailable } from '../core/error.ts';
import { HELD_FOR_GOOD } from '../core/lease.ts';
import type { InstancesOptions } from '../instances/contract.ts';
import { Instances } from '../instances/instances.ts';
import { LiveInstance } from '../instances/live-instance.ts';
import { InstanceRows } from '../instances/rows.ts';
import { SILENCE_TIMES } from '../instances/silence-times.ts';
import { TenantBudget } from '../lib/budgets.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { insertInstance, listInstancesOfNode } from '../storage/queries/instances.ts';
import { CodeFailure, type FunctionInstance } from './function-instance.ts';
import { SandboxLauncher } from './sandbox-launcher.ts';

const KEY = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };

let driver: FakeDriver;
let database: Database;
let dataDir: string;
let codeDir: string;
let servers: Instances[];
let launchers: SandboxLauncher[];

beforeEach(async () => {
  driver = new FakeDriver();
  driver.handlers.set('echo', event => event);
  database = await openDatabase(':memory:');
  dataDir = mkdtempSync(join(tmpdir(), 'rookery-launcher-'));
  codeDir = mkdtempSync(join(tmpdir(), 'rookery-launched-'));
  launchers = [];
  servers = [];
});
afterEach(async () => {
  vi.restoreAllMocks();
  driver.faults.away = undefined;
  for (const launcher of launchers) await launcher.close();
  for (const instances of servers) await instances.close('the server is stopping');
  await driver.dispose();
  await database.destroy();
  rmSync(dataDir, { recursive: true, force: true });
  rmSync(codeDir, { recursive: true, force: true });
});

/** Code packages by their SHA-256: paths of archives. */
const archives = new Map<string, string>();

function newLauncher(
  changes: Partial<Pick<InstancesOptions, 'adoption' | 'insertUnder' | 'cheapDrivers'>> = {},
): SandboxLauncher {
  const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const drivers = async () => driver;
  const instances = new Instances(database, {
    drivers,
    sweptDrivers: ['fake'],
    cheapDrivers: [],
    nodeId: 'node-1',
    log,
    createTimeoutMs: 10_000,
    adoption: { answerMs: 2_000, silenceMs: 3_000 },
    silence: { ...SILENCE_TIMES, awayRetryMs: 100 },
    orphanGraceMs: 0,
    reconcileIntervalMs: 3_600_000,
    ...changes,
  });
  servers.push(instances);
  const launcher = new SandboxLauncher({
    instances,
    drivers,
    codeStore: new CodeStore({
      disk: new TenantDisk(Number.MAX_SAFE_INTEGER),
      bootId: null,
      dataDir,
      policy: { closed: [], allow: null },
      removals: removalsIn(dataDir),
      s3: { endpoint: '', region: '', accessKeyId: '', secretAccessKey: '', allowedEndpoints: [] },
      packages: { archive: async (_, sha256) => archives.get(sha256) ?? '', unpacked: async () => undefined },
      maxCacheBytes: 0,
      maxArchiveBytes: 0,
      maxUnpackedBytes: 1_000_000,
      maxEntries: 100,
    }),
    nodeId: 'node-1',
    createTimeoutMs: 10_000,
    maxStarting: 2,
    openCallBytes: new TenantBudget(1024 * 1024),
    maxProcesses: 256,
    network: 'host',
    requireIsolation: false,
    log,
  });
  launchers.push(launcher);
  return launcher;
}

/** Closes the newest service. Its instances continue to run. */
async function closeServer(): Promise<void> {
  await launchers.at(-1)?.close();
  await servers.at(-1)?.close('the server is stopping');
}

/** Short adoption times, for services whose driver is unreachable: no instance can answer. */
const SOON = { adoption: { answerMs: 10, silenceMs: 10_000 } };

/** Starts a new service, and returns the instances that its first reconciler pass adopted. */
async function adopt(
  onLate: (instance: FunctionInstance) => void,
  changes: Pick<InstancesOptions, 'adoption'> = {},
): Promise<readonly FunctionInstance[]> {
  const launcher = newLauncher(changes);
  await servers.at(-1)?.start();
  return await launcher.adopt(onLate);
}

const fn = (changes: Parameters<typeof functionDefinition>[0] = {}) =>
  functionDefinition({ handler: 'echo', code: { storage: 'local', path: codeDir }, ...changes });
const rows = () => listInstancesOfNode(database, 'node-1');
const value = async (instance: FunctionInstance, event: unknown) => {
  const outcome = await instance.call({
    header: { traceId: 't', traceparent: '', requestId: 'r' },
    body: Buffer.from(JSON.stringify(event)),
    timeoutMs: 10_000,
  });
  return outcome.ok ? JSON.parse(outcome.data.toString()) : outcome.code;
};

describe('a launched instance', () => {
  it('a launched instance takes calls, has its code mounted, and has a record with its owner', async () => {
    const launcher = newLauncher();
    const instance = await launcher.launch(fn(), KEY, HELD_FOR_GOOD);
    expect(await value(instance, { n: 1 })).toEqual({ n: 1 });
    expect((await rows()).map(({ id, owner, spec }) => [id, owner.key, JSON.parse(spec).revisionId])).toEqual([
      [instance.id, fn().urn, 'r1'],
    ]);
    expect(driver.starts[0]?.mounts).toContainEqual({ source: codeDir, target: '/opt/function/code', readonly: true });
  });

  it('layers for AWS Lambda are mounted below /opt, and stay for an instance that a later service adopts', async () => {
    const layered = { runtime: 'lambda', lambdaLayers: ['one', 'two'] };
    for (const name of layered.lambdaLayers) {
      mkdirSync(join(codeDir, name, 'python'), { recursive: true });
      writeFileSync(join(codeDir, name, 'python', `${name}.py`), '');
      archives.set(name, join(codeDir, `${name}.tgz`));
      execFileSync('tar', ['-czf', join(codeDir, `${name}.tgz`), '-C', join(codeDir, name), 'python']);
    }
    const first = await newLauncher().launch(fn(layered), KEY, HELD_FOR_GOOD);
    const mount = driver.starts[0]?.platformMounts?.find(({ target }) => target === '/opt/python');
    const source = mount?.source ?? '';
    expect({ files: readdirSync(source).sort(), readonly: mount?.readonly }).toEqual({
      files: ['one.py', 'two.py'],
      readonly: true,
    });
    await closeServer();
    const [adopted] = await adopt(() => undefined);
    expect([adopted?.id, existsSync(source)]).toEqual([first.id, true]);
    await adopted?.stop();
    await vi.waitFor(() => expect(existsSync(source)).toBe(false), { timeout: 90_000 });
  });

  it('a layer that cannot be shown fails every call with the reason', async () => {
    mkdirSync(join(codeDir, 'three/rookery'), { recursive: true });
    archives.set('three', join(codeDir, 'three.tgz'));
    execFileSync('tar', ['-czf', join(codeDir, 'three.tgz'), '-C', join(codeDir, 'three'), 'rookery']);
    const launching = newLauncher().launch(fn({ runtime: 'lambda', lambdaLayers: ['three'] }), KEY, HELD_FOR_GOOD);
    await expect(launching).rejects.toThrow(CodeFailure);
    await expect(launching).rejects.toThrow('the name "rookery" at its top is reserved');
  });

  it('a stopped instance leaves no sandbox and no record', async () => {
    const instance = await newLauncher().launch(fn(), KEY, HELD_FOR_GOOD);
    await instance.stop();
    expect(await instance.ended).toBe('stopped');
    expect(driver.instanceIds).toEqual([]);
    expect(await rows()).toEqual([]);
  });

  it('a stuck instance gets a shorter grace time to stop, unless the function has a pre_stop', async () => {
    const terminate = vi.spyOn(LiveInstance.prototype, 'terminate');
    const graceOf = async (changes: Parameters<typeof fn>[0], isStuck: boolean) => {
      const instance = await newLauncher().launch(fn(changes), KEY, HELD_FOR_GOOD);
      await instance.stop(isStuck);
      return terminate.mock.lastCall?.[0];
    };
    expect(await graceOf({}, false)).toBe(10_000);
    expect(await graceOf({}, true)).toBe(2_000);
    expect(await graceOf({ preStop: 'echo', preStopTimeoutMs: 20_000 }, true)).toBe(20_000);
    terminate.mockRestore();
  });

  it('an instance that dies reports the reason and leaves no sandbox and no record', async () => {
    const instance = await newLauncher().launch(fn(), KEY, HELD_FOR_GOOD);
    driver.kill(instance.id);
    expect(await instance.ended).toContain('SIGKILL');
    await expect.poll(async () => (await rows()).length).toBe(0);
    await expect.poll(() => driver.instanceIds).toEqual([]);
  });

  it('a call fails immediately when its instance dies', async () => {
    driver.handlers.set('die', (_event, { exit }) => exit(3));
    const instance = await newLauncher().launch(fn({ handler: 'die' }), KEY, HELD_FOR_GOOD);
    await expect(value(instance, {})).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('exit code 3'),
    });
  });
});

describe('a failed launch', () => {
  it('a launch fails with CodeFailure when the code cannot be loaded', async () => {
    await expect(newLauncher().launch(fn({ handler: 'nosuch' }), KEY, HELD_FOR_GOOD)).rejects.toBeInstanceOf(
      CodeFailure,
    );
    expect(driver.instanceIds).toEqual([]);
    expect(await rows()).toEqual([]);
  });

  it('a launch fails with 4001 before any sandbox starts when the code directory is missing', async () => {
    const missing = fn({ code: { storage: 'local', path: join(codeDir, 'nosuch') } });
    await expect(newLauncher().launch(missing, KEY, HELD_FOR_GOOD)).rejects.toMatchObject({ error: { code: 4001 } });
    expect(driver.starts).toEqual([]);
  });

  it('a launch fails with unavailable instead of CodeFailure when the driver fails', async () => {
    driver.faults.startError = unavailable('no room');
    await expect(newLauncher().launch(fn(), KEY, HELD_FOR_GOOD)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await rows()).toEqual([]);
  });
});

describe('the record of an instance while the instance starts', () => {
  /** Makes a launcher that writes the record of an instance only when `write` is called. */
  const held = () => {
    let settle: { readonly write: () => void; readonly fail: (error: Error) => void } | undefined;
    const turn = new Promise<void>((write, fail) => {
      settle = { write, fail };
    });
    const asked = vi.fn();
    const insertUnder: InstancesOptions['insertUnder'] = async (_lease, instance) => {
      asked();
      await turn;
      await insertInstance(database, instance);
    };
    const launcher = newLauncher({ insertUnder });
    return { launcher, asked, write: () => settle?.write(), fail: (error: Error) => settle?.fail(error) };
  };
  const pod = () => fn({ sandboxType: 'kubernetes' });

  it('the record is written before a sandbox starts when a start is expensive', async () => {
    const { launcher, asked, write } = held();
    const launching = launcher.launch(fn(), KEY, HELD_FOR_GOOD);
    await expect.poll(() => asked.mock.calls).toHaveLength(1);
    await new Promise(resolve => setImmediate(resolve));
    expect(driver.starts).toEqual([]);
    write();
    await launching;
  });

  it('the record of a pod is written while the pod starts and before the pod takes calls', async () => {
    const { launcher, write } = held();
    const launching = launcher.launch(pod(), KEY, HELD_FOR_GOOD);
    await expect.poll(() => driver.instanceIds).toHaveLength(1);
    expect(await rows()).toEqual([]);
    write();
    const { id } = await launching;
    expect(await rows()).toMatchObject([{ id, status: 'RUNNING' }]);
  });

  it('a launch fails with the reason and leaves no pod when the record cannot be written', async () => {
    const { launcher, fail } = held();
    const launching = launcher.launch(pod(), KEY, HELD_FOR_GOOD);
    launching.catch(() => undefined);
    await expect.poll(() => driver.instanceIds).toHaveLength(1);
    fail(unavailable('the lease is lost'));
    await expect(launching).rejects.toMatchObject({ code: 'unavailable', message: 'the lease is lost' });
    expect(driver.instanceIds).toEqual([]);
    expect(await rows()).toEqual([]);
  });

  it('a record that is written after a failed start is removed', async () => {
    const { launcher, write } = held();
    driver.faults.startError = unavailable('no room');
    const launching = launcher.launch(pod(), KEY, HELD_FOR_GOOD);
    launching.catch(() => undefined);
    await expect.poll(() => driver.starts).toHaveLength(1);
    write();
    await expect(launching).rejects.toMatchObject({ message: expect.stringContaining('no room') });
    expect(await rows()).toEqual([]);
  });
});

describe('the record of an instance when a start is cheap', () => {
  const launch = () => newLauncher({ cheapDrivers: ['fake'] }).launch(fn(), KEY, HELD_FOR_GOOD);

  it('the record is inserted while the sandbox starts and before the instance takes calls', async () => {
    const insert = InstanceRows.prototype.insert;
    let write = () => {};
    const turn = new Promise<void>(resolve => {
      write = resolve;
    });
    vi.spyOn(InstanceRows.prototype, 'insert').mockImplementation(async function (this: InstanceRows, instance) {
      await turn;
      return await insert.call(this, instance);
    });
    const launched = vi.fn();
    const launching = launch().finally(launched);
    await expect.poll(() => driver.runningIds).toHaveLength(1);
    expect(await rows()).toEqual([]);
    await new Promise(resolve => setImmediate(resolve));
    expect(launched).not.toHaveBeenCalled();
    write();
    const instance = await launching;
    expect(await rows()).toMatchObject([{ id: instance.id, status: 'RUNNING', handle: expect.any(String) }]);
    expect(await value(instance, 7)).toBe(7);
  });

  it('a launch fails with the reason and leaves no sandbox when the record cannot be written', async () => {
    vi.spyOn(InstanceRows.prototype, 'insert').mockRejectedValue(unavailable('the disk is full'));
    await expect(launch()).rejects.toMatchObject({ code: 'unavailable', message: 'the disk is full' });
    expect(driver.instanceIds).toEqual([]);
  });

  it('the record is removed when the instance is stopped right after its launch', async () => {
    const instance = await launch();
    await instance.stop();
    expect(driver.instanceIds).toEqual([]);
    expect(await rows()).toEqual([]);
  });
});

it('the launcher runs at most maxStarting starts at a time, and the others wait', async () => {
  let open!: () => void;
  driver.faults.startGate = new Promise(resolve => {
    open = resolve;
  });
  const launcher = newLauncher();
  const launches = [1, 2, 3, 4].map(() => launcher.launch(fn(), KEY, HELD_FOR_GOOD));
  await expect.poll(() => driver.starts.length).toBe(2);
  open();
  await Promise.all(launches);
  expect(driver.starts).toHaveLength(4);
});

describe('recovered instances after a restart of the service', () => {
  it('a restarted service adopts live instances and removes dead and unreachable ones', async () => {
    const before = newLauncher();
    const [live, dead, unreachable] = await Promise.all([1, 2, 3].map(() => before.launch(fn(), KEY, HELD_FOR_GOOD)));
    if (!live || !dead || !unreachable) throw new Error('three were launched');
    await closeServer();
    driver.kill(dead.id);
    driver.becomeUnreachable(unreachable.id);
    const adopted = await adopt(() => undefined);
    expect(adopted.map(({ id, key, revisionId }) => ({ id, key, revisionId }))).toEqual([
      { id: live.id, key: KEY, revisionId: 'r1' },
    ]);
    expect(adopted[0] && (await value(adopted[0], 7))).toBe(7);
    // The service waits for a silent instance of any kind before it removes the instance.
    await vi.waitFor(async () => expect((await rows()).map(({ id }) => id)).toEqual([live.id]));
    expect(driver.runningIds).toEqual([live.id]);
  });

  it('the cached code of an instance stays while the state of the instance is unknown', async () => {
    const before = newLauncher();
    await before.launch(fn(), KEY, HELD_FOR_GOOD);
    await closeServer();
    const cached = join(dataDir, 'code', 'cache', 'entry');
    mkdirSync(cached, { recursive: true });
    writeFileSync(join(cached, 'main.py'), 'print(1)');
    const [row] = await rows();
    const spec = JSON.stringify({ ...JSON.parse(row?.spec ?? '{}'), codeSource: cached });
    await database.updateTable('instances').set({ spec }).execute();
    driver.faults.away = 'it starts with the machine';
    expect(await adopt(() => undefined, SOON)).toEqual([]);
    expect(existsSync(join(cached, 'main.py'))).toBe(true);
  });

  it('instances are kept while their driver does not answer, and adopted when the driver answers', async () => {
    const before = newLauncher();
    const [live, dead] = await Promise.all([1, 2].map(() => before.launch(fn(), KEY, HELD_FOR_GOOD)));
    if (!live || !dead) throw new Error('two were launched');
    await closeServer();
    driver.kill(dead.id);
    driver.faults.away = 'it starts with the machine';
    const late: FunctionInstance[] = [];
    expect(await adopt(instance => late.push(instance), SOON)).toEqual([]);
    expect((await rows()).map(({ id }) => id).sort()).toEqual([live.id, dead.id].sort());
    expect(driver.runningIds).toEqual([live.id]);
    driver.faults.away = undefined;
    await servers.at(-1)?.reconcile();
    await vi.waitFor(() => expect(late.map(({ id }) => id)).toEqual([live.id]));
    expect(late[0] && (await value(late[0], 7))).toBe(7);
    await vi.waitFor(async () => expect((await rows()).map(({ id }) => id)).toEqual([live.id]));
  });
});
