import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import tar from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Served } from '../../scripts/served.ts';
import { findProcesses } from '../../src/sandbox/host/machine-sandboxes.ts';
import { Bed } from './agents.ts';

const CODE = `
import os
def handle(event, context):
    return os.environ.get("KEY")
`;
const VALUE = 'the value of the secret';
const PACKAGE = '_ray_pkg_0123456789abcdef.zip';
/** A zip archive without files. */
const EMPTY_ZIP = Buffer.from(`504b0506${'00'.repeat(18)}`, 'hex');

/** Runs `rookery` and returns its exit code and its whole output. */
async function rookery(...args: readonly string[]): Promise<{ readonly code: number | null; readonly said: string }> {
  const child = spawn(process.execPath, [join(ROOT, 'dist/main.js'), ...args], {
    env: { PATH: process.env.PATH, HOME: tmpdir() },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { code: child.exitCode, said: `${out}${err}` };
}

describe('rookery backup and restore', () => {
  let bed: Bed;
  let root: string;
  beforeAll(async () => {
    root = mkdtempSync(join(tmpdir(), 'rookery-backup-'));
    bed = await Bed.start({ 'app.py': CODE });
  }, 60_000);
  afterAll(async () => {
    await bed?.[Symbol.asyncDispose]();
    rmSync(root, { recursive: true, force: true });
  }, 60_000);

  async function uploadCode(): Promise<string> {
    const pack = tar.pack();
    pack.entry({ name: 'app.py' }, CODE);
    pack.finalize();
    const chunks: Buffer[] = [];
    for await (const chunk of pack) chunks.push(chunk as Buffer);
    const bytes = gzipSync(Buffer.concat(chunks));
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const put = await fetch(`${bed.server.frontendUrl}/api/code/${sha256}`, { method: 'PUT', body: bytes });
    expect(put.status).toBe(200);
    return `code://${sha256}`;
  }

  async function fill(): Promise<{ readonly id: string; readonly urn: string }> {
    const code = await uploadCode();
    const environment = { KEY: { secret: 'key' } };
    expect((await bed.ask('PUT', '/api/secrets/key', { value: VALUE })).status).toBe(200);
    const mounts = [{ source: code, target: '/code', readonly: true }];
    const id = await bed.create('kept', 'app.handle', {}, { mounts, env_vars: environment });
    const registered = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        ...{ name: '0@svc@kept', kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, handler: 'app.handle' },
        ...{ storageType: 'package', codePath: code, environment },
      },
      { meta: true },
    );
    expect(registered.body).toMatchObject({ code: 0 });
    const put = await fetch(`${bed.server.frontendUrl}/api/packages/gcs/${PACKAGE}`, {
      method: 'PUT',
      body: EMPTY_ZIP,
    });
    expect(put.status).toBe(200);
    const job = { entrypoint: 'echo done', submission_id: 'kept' };
    expect((await bed.ask('POST', '/api/jobs/', job)).status).toBe(200);
    const status = async () => (await bed.ask('GET', '/api/jobs/kept')).body.status;
    await expect.poll(status, { timeout: 60_000, interval: 100 }).toBe('SUCCEEDED');
    const schedule = { cron: '0 0 1 1 *', job: { entrypoint: 'true' } };
    expect((await bed.ask('POST', '/api/job_schedules', schedule)).status).toBe(200);
    return { id, urn: String(registered.body.functionVersionUrn) };
  }

  const callFunction = (urn: string) =>
    bed.ask('POST', `/serverless/v1/functions/${encodeURIComponent(urn)}/invocations`, {});

  test('a restore in another directory contains everything that was stored before a kill', async () => {
    const { id, urn } = await fill();
    expect((await bed.invoke(id)).body.data).toBe(VALUE);
    const backup = join(root, 'backup.tar.gz');
    const isOver = new AbortController();
    const calls = Array.from({ length: 4 }, async () => {
      const statuses = new Set<number>();
      while (!isOver.signal.aborted) {
        statuses.add((await bed.invoke(id)).status);
        statuses.add((await callFunction(urn)).status);
      }
      return [...statuses];
    });
    const made = await rookery('backup', backup, '--data-dir', bed.server.dataDir);
    isOver.abort();
    expect(made).toMatchObject({ code: 0, said: expect.stringMatching(/^backed up .*: 5 files, /) });
    expect(await Promise.all(calls)).toEqual(calls.map(() => [200]));

    const refused = await rookery('restore', backup, '--data-dir', bed.server.dataDir);
    expect(refused).toMatchObject({ code: 1, said: expect.stringContaining('a service runs on the data directory') });

    const elsewhere = join(root, 'elsewhere');
    const restored = await rookery('restore', backup, '--data-dir', elsewhere);
    expect(restored).toMatchObject({ code: 0, said: expect.stringMatching(/^restored 5 files of /) });
    const before = bed.server;
    await before.end('SIGKILL');
    const again = await rookery('restore', backup, '--data-dir', before.dataDir);
    expect(again).toMatchObject({ code: 1, said: expect.stringMatching(/is not empty: it holds .*may still run/) });

    // The sandboxes of the first service still run.
    bed.server = await Served.start({ dataDir: elsewhere });
    await bed.disconnect();
    const found = async () => (await bed.ask('GET', `/api/agent/${id}`)).body.instance;
    await expect.poll(found).toMatchObject({ name: 'kept', status: 'FAILED' });
    const sandboxes = (await findProcesses()).filter(({ dataDir }) => dataDir === before.dataDir);
    expect(sandboxes.map(({ instanceId }) => instanceId)).toContain(id);
    await before.remove();
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
    expect((await bed.invoke(id)).body.data).toBe(VALUE);
    expect(await callFunction(urn)).toMatchObject({ status: 200, body: VALUE });
    expect((await bed.ask('GET', '/api/jobs/kept')).body).toMatchObject({ status: 'SUCCEEDED' });
    const schedules = await bed.ask('GET', '/api/job_schedules');
    expect(JSON.stringify(schedules.body)).toContain('0 0 1 1 *');
    const fetched = await fetch(`${bed.server.frontendUrl}/api/packages/gcs/${PACKAGE}`);
    expect(fetched.status).toBe(200);
  }, 180_000);

  test('a backup of a PostgreSQL installation is refused with the list of what to copy instead', async () => {
    const options = ['--storage-url', 'postgres://db.example.com/rookery', '--data-dir', join(root, 'none')];
    expect(await rookery('backup', join(root, 'copy'), ...options)).toMatchObject({
      code: 1,
      said: expect.stringContaining('pg_dump --format=custom'),
    });
  });
});
