import type { Environment } from '../../core/environment.ts';
import { execFile } from '../../lib/child-process.ts';
import type { Log } from '../../lib/log.ts';

export type ServiceState = 'READY=1' | 'STOPPING=1';

/**
 * Longer than any notification takes: the socket buffers several messages, so only a broken manager blocks.
 */
const NOTIFY_TIMEOUT_MS = 10_000;

/**
 * Returns a function that notifies the service manager of this process (systemd, `Type=notify`). Without a
 * manager, the function does nothing. Failures are only logged. Node has no datagram sockets of this kind, so
 * `systemd-notify`, which is part of systemd, sends the messages.
 */
export function createServiceManager(
  { NOTIFY_SOCKET, PATH }: Environment,
  logger: Log,
): (state: ServiceState, status: string) => void {
  if (!NOTIFY_SOCKET) return () => {};
  // Passes no other variables, because settings may hold passwords.
  const env = { NOTIFY_SOCKET, PATH: PATH ?? '/usr/bin:/bin' };
  return (state, status) => {
    execFile('systemd-notify', [state, `STATUS=${status}`], { env, timeout: NOTIFY_TIMEOUT_MS }, error => {
      if (error !== null) logger.warn({ err: error, state }, 'systemd-notify failed');
    });
  };
}
