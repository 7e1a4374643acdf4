import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';

const cli = (...args: string[]) =>
  execFileSync(process.execPath, [join(ROOT, 'dist/main.js'), ...args], { encoding: 'utf8' });

describeWith(['pypi'], 'rookery init with an index of packages', () => {
  test('the MCP template of init answers at its address', async () => {
    const work = mkdtempSync(join(tmpdir(), 'rookery-init-'));
    const server = await Served.start({ args: [STOP_AGENTS] });
    const connection = ['--address', server.frontendUrl, '--meta-address', server.metaUrl];
    try {
      const app = join(work, 'app');
      cli('init', 'mcp', app);
      cli('deploy', '-f', join(app, 'rookery.yaml'), ...connection);
      expect(JSON.parse(cli('agent', 'invoke', 'app', '{}', ...connection))).toEqual({ tools: ['greet'] });
      const params = { name: 'greet', arguments: { name: 'you' } };
      const answer = await fetch(`${server.frontendUrl}/default/app/mcp`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
      });
      expect(await answer.json()).toMatchObject({ id: 1, result: { structuredContent: { result: 'Hello, you!' } } });
    } finally {
      await server.remove();
      rmSync(work, { recursive: true, force: true });
    }
  }, 300_000);
});
