import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import type { Served } from '../../scripts/served.ts';
import { threeReplicas } from '../parts/three-replicas.ts';
import { describeWith } from '../probe.ts';

describeWith(['postgres'], 'the Lambda API on three replicas', () => {
  const replicas = threeReplicas('rookery-lambda-');

  test('every replica invokes every function', { timeout: 120_000 }, async () => {
    const { all, directory } = replicas;
    const [first] = all;
    writeFileSync(join(directory, 'main.py'), 'def echo(event, context):\n    return event\n');
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
    for (const { frontendUrl } of all) {
      for (const name of names) {
        const url = `${frontendUrl}/lambda/2015-03-31/functions/svc@${name}/invocations`;
        const answer = await fetch(url, { method: 'POST', body: JSON.stringify({ name }) });
        expect([answer.status, await answer.json()]).toEqual([200, { name }]);
      }
    }
  });

  test('every replica creates, changes and publishes functions from a zip', { timeout: 120_000 }, async () => {
    const { all } = replicas;
    const send = async ({ frontendUrl }: Served, method: string, path: string, body: object) => {
      const url = `${frontendUrl}/lambda/2015-03-31/functions${path}`;
      const answer = await fetch(url, { method, body: JSON.stringify(body) });
      return { status: answer.status, body: (await answer.json()) as Readonly<Record<string, unknown>> };
    };
    const settings = { Runtime: 'python3.12', Handler: 'app.handler', Role: 'any', Timeout: 60 };
    for (const [index, maker] of all.entries()) {
      const FunctionName = `made-${index}`;
      const created = await send(maker, 'POST', '', { FunctionName, ...settings, Code: { ZipFile: zipOf('1') } });
      expect(created).toMatchObject({ status: 201, body: { FunctionName } });
      const next = all[(index + 1) % 3] as Served;
      const changed = await send(next, 'PUT', `/${FunctionName}/code`, { ZipFile: zipOf('2'), Publish: true });
      expect(changed).toMatchObject({ status: 200, body: { Version: '1' } });
      for (const replica of all) {
        const path = `/${FunctionName}:1/invocations`;
        expect(await send(replica, 'POST', path, {})).toEqual({ status: 200, body: { code: 2 } });
      }
    }
  });
});

/** Returns a zip in Base64 with a handler that returns a number. */
function zipOf(code: string): string {
  const program = `
import base64, io, zipfile
out = io.BytesIO()
with zipfile.ZipFile(out, 'w') as archive:
    archive.writestr('app.py', 'def handler(event, context): return {"code": ${code}}')
print(base64.b64encode(out.getvalue()).decode())`;
  return execFileSync('python3', ['-c', program], { encoding: 'utf8' }).trim();
}
