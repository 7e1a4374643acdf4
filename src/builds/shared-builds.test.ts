import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import { FakeDriver } from '../../test/fakes/fake-driver.ts';
import { removalsIn } from '../../test/parts/removals.ts';
import { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import type { LogRequest, SandboxHandle } from '../sandbox/driver.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { CodeDependencies, type CodeDependenciesOptions } from './code-dependencies.ts';
import { Layers, type LayersOptions, type Recipe } from './layers.ts';

/** Driver whose commands print a line at the start and at the end of their log. */
class BuildDriver extends FakeDriver {
  override async *logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    yield Buffer.from('installing\n');
    yield* super.logs(handle, request, signal);
    yield Buffer.from('installed\n');
  }
}

const RECIPE: Recipe = {
  ...{ key: 'k', tenant: 't', tool: 'pip', target: '/opt/layer', errorLines: 1 },
  ...{ files: {}, mounts: [], binDirs: [], env: {}, argv: () => ['true'] },
};

let root: string;
let database: Database;
let driver: BuildDriver;
let instances: Instances;
let options: LayersOptions;
let layers: Layers;

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'rookery-builds-'));
  mkdirSync(join(root, 'layers'));
  database = await openDatabase(':memory:');
  driver = new BuildDriver();
  const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
  instances = new Instances(database, {
    ...{ drivers: async () => driver, sweptDrivers: ['fake'], cheapDrivers: [], nodeId: 'n', log },
    ...{ createTimeoutMs: 60_000, orphanGraceMs: 0, reconcileIntervalMs: 3_600_000 },
  });
  options = {
    ...{ directory: join(root, 'layers'), removals: removalsIn(root), instances, driver: async () => driver },
    ledger: { reserve: () => undefined, release: () => undefined } as unknown as Ledger,
    rules: { maxProcesses: 64, network: 'host', requireIsolation: false, memoryMb: 256, cpuMillis: 1000 },
    ...{ timeoutMs: 60_000, maxBytes: MIB, keepMs: 60_000, maxUnusedBytes: MIB, disk: new TenantDisk(MIB) },
    inside: (_source, target) => target,
  };
  layers = new Layers(options);
});

afterEach(async () => {
  await instances.close('the test is over');
  await driver.dispose();
  await database.destroy();
  rmSync(root, { recursive: true });
});

const MIB = 1024 * 1024;
const layer = () => join(root, 'layers', RECIPE.key);

/** Writes a file into the layer of the running build, and ends its command. */
async function install(): Promise<void> {
  await vi.waitFor(() => expect(driver.runningIds).toHaveLength(1));
  const { instanceId, platformMounts = [] } = driver.starts.at(-1) as (typeof driver.starts)[number];
  writeFileSync(join(platformMounts[0]?.source ?? '', 'file'), 'content');
  driver.kill(instanceId, { code: 0, signal: null });
}

test('a caller whose output callback fails gets the error alone, and other callers get the layer', async () => {
  const heard: string[] = [];
  const failing = (atText: string) => async (text: Buffer | string) => {
    if (`${text}`.includes(atText)) throw new Error(`no room for: ${text}`);
  };
  const first = layers.get(RECIPE, failing('installing'));
  await vi.waitFor(() => expect(driver.runningIds).toHaveLength(1));
  const late = layers.get(RECIPE, failing('installed'));
  const whole = layers.get(RECIPE, async text => void heard.push(`${text}`));
  const all = Promise.allSettled([first, late, whole]);
  await install();
  expect(await all).toMatchObject([
    { status: 'rejected', reason: { message: 'no room for: installing\n' } },
    { status: 'rejected', reason: { message: expect.stringContaining('installed\n') } },
    { status: 'fulfilled', value: layer() },
  ]);
  expect(heard.join('')).toBe('installing\ninstalled\n');
  expect(existsSync(join(layer(), 'file'))).toBe(true);
});

test('a layer appears only after its flush to disk has succeeded', async () => {
  const seen: boolean[] = [];
  let fault: Error | undefined = new Error('EIO');
  const flush = async (path: string) => {
    seen.push(existsSync(join(path, 'file')), existsSync(layer()));
    if (fault !== undefined) throw fault;
  };
  layers = new Layers({ ...options, flush });
  const failing = layers.get(RECIPE, async () => undefined);
  const failed = expect(failing).rejects.toMatchObject({ code: 'unavailable', cause: fault });
  await install();
  await failed;
  expect(existsSync(layer())).toBe(false);
  fault = undefined;
  const made = layers.get(RECIPE, async () => undefined);
  await install();
  expect(await made).toBe(layer());
  expect(seen).toEqual([true, false, true, false]);
});

test('a build of dependencies succeeds when its record and log cannot be written', async () => {
  const code = join(root, 'code');
  mkdirSync(code);
  writeFileSync(join(code, 'requirements.txt'), 'six\n');
  const [{ path: python } = { path: '' }] = await findInterpreters();
  const warnings: unknown[] = [];
  const dependencies = new CodeDependencies({
    ...{ ...options, maxBytes: 1024 * 1024, maxUnusedBytes: 0, dataDir: root, hasNetwork: true, environment: {} },
    ...{
      policy: { closed: [], allow: null },
      python: async () => python,
      index: { pythonIndex: '', npmRegistry: '' },
    },
    log: { warn: (fields: object, text: string) => void warnings.push({ ...fields, text }) },
  } as unknown as CodeDependenciesOptions);
  await dependencies.start(new Set());
  const { records } = dependencies;
  for (const name of ['say', 'end'] as const) vi.spyOn(records, name).mockRejectedValue(new Error('no room'));
  const mounts = [{ source: code, target: '/code', readonly: true }];
  const subject = {
    ...{ tenant: 't', runtime: 'python3.11', codePath: '/code', mounts },
    dependencies: 'auto',
  } as const;
  const both = [1, 2].map(() => dependencies.build({ ...subject, sandboxType: 'process' }));
  await install();
  const [first, second] = await Promise.all(both);
  expect(first).toMatch(/^[0-9a-f]{40}$/);
  expect(second).toBe(first);
  expect(warnings).toEqual([{ build: first, reason: 'no room', text: 'build log is incomplete' }]);
  await dependencies.close();
});
