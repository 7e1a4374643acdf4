import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that Linux gives to connections (`ip_local_port_range`) and those of Kubernetes' nodes. */
const FIRST = 12_000;
const COUNT = 16_000;

/**
 * Returns a port of the loopback on which nothing listens. Nothing holds it: the program that gets it must
 * listen soon. The port is random, and outgoing connections never get it, so that tests that run at the same
 * time do not meet.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * COUNT);
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
