import type { Environment } from '../core/environment.ts';
import { execFile } from '../lib/child-process.ts';

export type ServiceState = 'READY=1' | 'STOPPING=1';

interface Log {
  warn(fields: object, message: string): void;
}

/** The socket has room for more than one message; a service manager that does not read is none. */
const NOTIFY_TIMEOUT_MS = 10_000;

/**
 * Tells the service manager that started this process (systemd, `Type=notify`) how it stands; does nothing where none did. Never fails: who is not heard is
 * logged. Node has no datagram sockets of this kind, so systemd's own program sends them, which is there where systemd is.
 */
export function createServiceManager(
  { NOTIFY_SOCKET, PATH }: Environment,
  logger: Log,
): (state: ServiceState, status: string) => void {
  if (!NOTIFY_SOCKET) return () => {};
  // Nothing else of ours: settings may hold passwords.
  const env = { NOTIFY_SOCKET, PATH: PATH ?? '/usr/bin:/bin' };
  return (state, status) => {
    execFile('systemd-notify', [state, `STATUS=${status}`], { env, timeout: NOTIFY_TIMEOUT_MS }, error => {
      if (error !== null) logger.warn({ err: error, state }, 'systemd cannot be told: systemd-notify failed');
    });
  };
}
