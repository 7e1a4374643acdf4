import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Rookery } from './rookery.ts';

test('the name that an agent gets of its directory can stand in an address, however long that is', async () => {
  const names: string[] = [];
  const server = createServer(async (request, answer) => {
    const text = (await request.toArray()).join('');
    if (request.method === 'POST') names.push((JSON.parse(text) as { name: string }).name);
    answer.end('{"code":200,"instance_id":"x","instance":{"instance_id":"x"}}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const rookery = new Rookery({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  // The thirtieth character is no letter.
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
