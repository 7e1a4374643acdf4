import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served } from '../../scripts/served.ts';
import { freePort } from '../parts/free-port.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { describeWith } from '../probe.ts';

const run = promisify(execFile);

describeWith(['postgres'], 'code packages of two replicas over one PostgreSQL, without an object store', () => {
  let postgres: TestPostgres;
  let directory: string;
  let runtime: string;
  const nodes: Served[] = [];

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-code-replicas-'));
    mkdirSync(join(directory, 'code'));
    writeFileSync(join(directory, 'code/app.py'), 'def handle(event, context):\n    return "of the package"\n');
    // The file needs more than one part in the database.
    writeFileSync(join(directory, 'code/data'), randomBytes(2_500_000));
    writeFileSync(join(directory, 'secret'), randomBytes(32).toString('hex'), { mode: 0o600 });
    runtime = `python${(await findInterpreters()).at(-1)?.version}`;
    postgres = await startPostgres();
    const env = {
      ROOKERY_STORAGE_URL: await postgres.database(),
      ROOKERY_CLUSTER_SECRET_FILE: join(directory, 'secret'),
    };
    for (let at = 0; at < 2; at++) {
      const listen = { ROOKERY_CLUSTER_LISTEN: `127.0.0.1:${await freePort()}` };
      nodes.push(
        await Served.start({ env: { ...env, ...listen }, args: ['--set', `mounts.allow=${directory}/nothing`] }),
      );
    }
  }, 180_000);
  afterAll(async () => {
    for (const node of nodes) await node.remove();
    await postgres?.close();
    rmSync(directory, { recursive: true, force: true });
  }, 120_000);

  const cli = (node: Served, ...args: string[]) =>
    run(process.execPath, [
      join(ROOT, 'dist/main.js'),
      ...args,
      ...['--address', node.frontendUrl, '--meta-address', node.metaUrl],
    ]);
  const ask = async (node: Served, method: string, path: string, body?: object) => {
    const answer = await fetch(`${node.frontendUrl}${path}`, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };

  test('code uploaded to one replica runs on the other, and is kept while an agent uses it', async () => {
    const [a, b] = nodes as [Served, Served];
    await cli(
      a,
      'function',
      'register',
      'fn',
      '--kind',
      'faas',
      '--runtime',
      runtime,
      '--handler',
      'app.handle',
      ...['--code', join(directory, 'code'), '--upload'],
    );
    const { body } = await ask(b, 'GET', '/api/code');
    const [{ source, sha256 }] = body.packages as [{ source: string; sha256: string }];
    const created = await ask(b, 'POST', '/api/agent', {
      ...{ namespace: 'default', name: 'on-b', mounts: [{ source, target: '/code' }] },
      runtime_spec: { runtime, codePath: '/code', handler: 'app.handle', rootfs: { imageurl: 'host' } },
    });
    expect(created).toMatchObject({ status: 200 });
    const id = String(created.body.instance_id);
    expect(await ask(b, 'POST', `/api/agent/${id}/invoke`, {})).toMatchObject({ body: { data: 'of the package' } });
    const urn = 'sn:cn:yrk:default:function:0@default@fn:$latest';
    for (const node of nodes) {
      await vi.waitFor(
        async () => {
          const answer = await fetch(`${node.frontendUrl}/serverless/v1/functions/${urn}/invocations`, {
            method: 'POST',
            body: '{}',
          });
          expect(await answer.json()).toBe('of the package');
        },
        { timeout: 60_000, interval: 500 },
      );
    }
    expect((await ask(a, 'DELETE', `/api/code/${sha256}`)).status).toBe(409);
    await ask(b, 'DELETE', `/api/agent/${id}`);
    await cli(b, 'function', 'delete', 'fn');
    expect((await ask(a, 'DELETE', `/api/code/${sha256}`)).status).toBe(200);
    expect((await ask(b, 'GET', `/api/code/${sha256}`)).status).toBe(404);
  }, 180_000);
});
