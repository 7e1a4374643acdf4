import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served } from '../../scripts/served.ts';
import { KEPT_DIR } from '../parts/kept.ts';
import { startPostgres } from '../parts/postgres.ts';
import { ServedReplicas } from '../parts/served-replicas.ts';
import { describeWith } from '../probe.ts';

const RAY = 'ray[default]==2.60.0';
/** Directory of the client, which is large and is installed once for all runs on a machine. */
const TOOLS = join(KEPT_DIR, 'rookery-test-tools');
const VENV = join(TOOLS, 'ray-2.60.0');
/** Versions of Python for which this Ray has wheels. */
const VERSIONS = ['3.12', '3.11', '3.10', '3.13'];

let work: string;

beforeAll(async () => {
  await installRay();
}, 600_000);
beforeEach(() => {
  work = mkdtempSync(join(tmpdir(), 'rookery-ray-'));
});
afterEach(() => rmSync(work, { recursive: true, force: true }));

test('the unmodified Ray client works with the service as a command and as a library', {
  timeout: 180_000,
}, async () => {
  await using server = await Served.start();
  await useRay([server]);
});

describeWith(['postgres'], 'the Ray client with replicas', () => {
  test('the unmodified Ray client submits at one replica and uses another for status, logs, lists and stops', {
    timeout: 480_000,
  }, async () => {
    await using postgres = await startPostgres();
    await using replicas = await ServedReplicas.start(await postgres.database(), 2);
    await useRay(replicas.all);
  });
});

async function useRay(replicas: readonly Served[]): Promise<void> {
  const script = join(import.meta.dirname, 'ray-client.py');
  const env = { RAY_ADDRESS: '', RAY_API_SERVER_ADDRESS: '' };
  const args = [script, work, ...replicas.map(({ frontendUrl }) => frontendUrl)];
  const { code, output } = await run(join(VENV, 'bin/python'), args, { capture: true, env });
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('all well') });
}

/**
 * Installs the client and writes a mark last. An interrupted run leaves no mark, so the next run installs
 * again.
 */
async function installRay(): Promise<void> {
  const mark = join(VENV, 'complete');
  if (existsSync(mark)) return;
  const found = await findInterpreters();
  const python = VERSIONS.map(version => found.find(each => each.version === version)).find(each => each !== undefined);
  if (python === undefined) throw new Error(`the Ray client needs one of Python ${VERSIONS.join(', ')}`);
  mkdirSync(TOOLS, { recursive: true });
  for (const [program, ...args] of [
    [python.path, '-m', 'venv', '--clear', VENV],
    [join(VENV, 'bin/python'), '-m', 'pip', 'install', '--quiet', RAY],
  ]) {
    const { code, output } = await run(program as string, args, { capture: true });
    if (code !== 0) throw new Error(`${RAY} could not be installed:\n${output}`);
  }
  writeFileSync(mark, '');
}
