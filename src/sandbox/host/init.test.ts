import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ownName } from '../../lib/process-name.ts';
import { FrameSocket } from './frame-socket.ts';
import { awaitExit } from './init.ts';

test('who closes does not look whether each sandbox that it watched has ended: those that live on would be looked at for seconds', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-init-'));
  const server = net.createServer(socket => socket.resume());
  await new Promise<void>(resolve => server.listen(join(directory, 'init.sock'), resolve));
  try {
    const connection = await FrameSocket.connect(join(directory, 'init.sock'));
    const closing = new AbortController();
    const lives = { instanceId: 'one', directory, init: ownName(), groups: { paths: {}, versions: {} } };
    const sandbox = { ...lives, address: null, hasOwnNetwork: false, portMappings: [] };
    const ended = awaitExit(connection, sandbox, closing.signal);
    closing.abort();
    connection.close();
    await expect(ended).rejects.toThrow('nobody watches one any more');
  } finally {
    await new Promise(resolve => server.close(resolve));
    rmSync(directory, { recursive: true });
  }
});
