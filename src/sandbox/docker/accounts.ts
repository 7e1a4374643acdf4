import { machine } from 'node:os';
import { join } from 'node:path';
import type { SandboxSpec } from '../driver.ts';
import type { CheckedMount } from './mounts.ts';
import { INSIDE_CONTROL, INSIDE_ORDERS, INSIDE_SOCKET } from './sandbox-directory.ts';

/** Path of the first process's program in a container with accounts. */
const INSIDE_INIT = '/opt/rookery/init';

/**
 * Capabilities of root inside a container with accounts, as in a process sandbox. They reach only what the
 * container shows.
 */
export const ROOT_CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'];

/** Orders for the first process of a container with accounts (runtimes/native/src/container.c). */
export interface AccountsOrders {
  readonly secret: string;
  /** Name of the default account. */
  readonly user: string;
  readonly maxOpenFiles: number;
  readonly socket: string;
  readonly control: string;
}

/** Command line of that process. */
export const ACCOUNTS_ARGV: readonly string[] = [INSIDE_INIT, '--sandbox', INSIDE_ORDERS];

export function accountsOrders({ secret, maxOpenFiles }: SandboxSpec): AccountsOrders {
  return { secret, maxOpenFiles, user: 'user', socket: INSIDE_SOCKET, control: INSIDE_CONTROL };
}

/** Returns the mount of its program. `pythonDir`: the directory of `rookery_zygote`. */
export function initMount(pythonDir: string): CheckedMount {
  const source = join(pythonDir, 'rookery_zygote', 'bin', `init-${machine()}`);
  return { source, target: INSIDE_INIT, readonly: true, ownerUid: null };
}
