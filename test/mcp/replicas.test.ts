import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import type { Served } from '../../scripts/served.ts';
import { threeReplicas } from '../parts/three-replicas.ts';
import { describeWith } from '../probe.ts';

describeWith(['postgres'], 'MCP on three replicas', () => {
  const replicas = threeReplicas('rookery-mcp-');

  async function call({ frontendUrl }: Served, name: string, input: object) {
    const answer = await fetch(`${frontendUrl}/mcp`, {
      method: 'POST',
      headers: { accept: 'application/json, text/event-stream', 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: input } }),
    });
    const text = await answer.text();
    return { status: answer.status, result: (JSON.parse(text) as { readonly result?: Result }).result, text };
  }

  test('every replica calls every function and works on every sandbox', { timeout: 120_000 }, async () => {
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
          ...{ storageType: 'local', codePath: directory, description: 'Echoes.', inputSchema: { type: 'object' } },
        }),
      });
    }
    for (const replica of all) {
      for (const name of names) {
        const answer = await call(replica, `svc_${name}`, { name });
        expect(answer).toMatchObject({ status: 200, result: { structuredContent: { name } } });
      }
    }
    for (const maker of all) {
      const made = await call(maker, 'sandbox_create', {});
      const sandbox_id = made.result?.structuredContent?.sandbox_id;
      for (const replica of all) {
        const ran = await call(replica, 'sandbox_run', { sandbox_id, command: 'echo hi >> f; cat f | wc -l' });
        expect(ran).toMatchObject({ status: 200, result: { structuredContent: { exit_code: 0 } } });
      }
      expect(await call(first, 'sandbox_kill', { sandbox_id })).toMatchObject({ status: 200 });
    }
  });
});

interface Result {
  readonly structuredContent?: Readonly<Record<string, unknown>>;
}
