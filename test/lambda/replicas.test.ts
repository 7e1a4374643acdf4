import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
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
});
