import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that Linux gives to connections (`ip_local_port_range`) and those of Kubernetes' nodes. */
const FIRST = 12_000;
const COUNT = 16_000;

/** Ports of one worker of Vitest, so that tests that run at the same time do not meet. */
const SHARE = 4_000;
const SHARES = COUNT / SHARE;
const first = FIRST + (Number(process.env.VITEST_POOL_ID ?? 0) % SHARES) * SHARE;
let next = Math.floor(Math.random() * SHARE);

/**
 * Returns a port of the loopback on which nothing listens. Nothing holds it, but outgoing connections never
 * get it, and this process returns it again only after 4000 others.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = first + next;
    next = (next + 1) % SHARE;
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const isListening = once(server.listen(port, '127.0.0.1'), 'listening').then(
    () => true,
    () => false,
  );
  if (!(await isListening)) return false;
  server.close();
  await once(server, 'close');
  return true;
}
