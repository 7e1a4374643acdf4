import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Rookery } from './rookery.ts';

test('agents.create makes a name that is valid in an address from a directory whose name is too long', async () => {
  const names: string[] = [];
  const server = createServer(async (request, answer) => {
    const text = (await request.toArray()).join('');
    if (request.method === 'POST') names.push((JSON.parse(text) as { name: string }).name);
    answer.end('{"code":200,"instance_id":"x","instance":{"instance_id":"x"}}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const rookery = new Rookery({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  // Character 30 of the name is a hyphen. The cut at 30 characters has to remove the hyphen, too.
  const code = mkdtempSync(join(tmpdir(), `_${'a'.repeat(29)}-_`));
  try {
    await rookery.agents.create({ code });
    expect(names).toEqual([expect.stringMatching(/^a{29}-[0-9a-f]{8}$/)]);
  } finally {
    rookery.close();
    server.close();
    rmSync(code, { recursive: true });
  }
});
