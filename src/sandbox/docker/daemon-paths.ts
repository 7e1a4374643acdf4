import { readFile } from 'node:fs/promises';

const SOCKET = '/var/run/docker.sock';
const DAEMON_SETTINGS = '/etc/docker/daemon.json';

/** Returns the daemon's socket, and its data directory if daemon.json sets one. */
export async function daemonPaths(): Promise<readonly string[]> {
  try {
    const place = (JSON.parse(await readFile(DAEMON_SETTINGS, 'utf8')) as Record<string, unknown>)['data-root'];
    return typeof place === 'string' && place.startsWith('/') ? [SOCKET, place] : [SOCKET];
  } catch {
    return [SOCKET];
  }
}
