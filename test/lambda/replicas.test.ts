import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import type { Served } from '../../scripts/served.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { ServedReplicas } from '../parts/served-replicas.ts';
import { describeWith } from '../probe.ts';

const WAIT = { timeout: 60_000, interval: 100 };

describeWith(['postgres'], 'the Lambda API on three replicas', () => {
  let postgres: TestPostgres;
  let replicas: ServedReplicas;
  const directory = mkdtempSync(join(tmpdir(), 'rookery-lambda-'));

  beforeAll(async () => {
    writeFileSync(join(directory, 'main.py'), 'def echo(event, context):\n    return event\n');
    postgres = await startPostgres();
    replicas = await ServedReplicas.start(await postgres.database(), 3);
    for (const { frontendUrl } of replicas.all) {
      const nodes = async () =>
        ((await (await fetch(`${frontendUrl}/api/cluster`)).json()) as { nodes: unknown }).nodes;
      await vi.waitFor(async () => expect(await nodes()).toHaveLength(3), WAIT);
    }
  }, 180_000);
  afterAll(async () => {
    await replicas?.[Symbol.asyncDispose]();
    await postgres?.close();
    rmSync(directory, { recursive: true, force: true });
  }, 120_000);

  test('every replica invokes every function', { timeout: 120_000 }, async () => {
    const [first] = replicas.all as [Served];
    const runtime = `python${(await findInterpreters()).at(-1)?.version}`;
    const names = ['a', 'b', 'c', 'd'];
    for (const name of names) {
      await fetch(`${first.metaUrl}/serverless/v1/functions`, {
        method: 'POST',
        body: JSON.stringify({
          ...{ name: `0@svc@${name}`, kind: 'faas', runtime, cpu: 100, memory: 128, handler: 'main.echo' },
          ...{ storageType: 'local', codePath: directory },
        }),
      });
    }
    for (const { frontendUrl } of replicas.all) {
      for (const name of names) {
        const url = `${frontendUrl}/lambda/2015-03-31/functions/svc@${name}/invocations`;
        const answer = await fetch(url, { method: 'POST', body: JSON.stringify({ name }) });
        expect([answer.status, await answer.json()]).toEqual([200, { name }]);
      }
    }
  });
});
