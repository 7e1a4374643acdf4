import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createServiceManager } from './service-manager.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-notify-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const warn = vi.fn();

test('the state goes to the socket of the service manager, through a program that sees none of our settings', async () => {
  const told = join(directory, 'told');
  const program = join(directory, 'systemd-notify');
  writeFileSync(program, `#!/bin/sh\nprintf '%s|' "$@" "$NOTIFY_SOCKET" "$ROOKERY_STORAGE_URL" >${told}\n`);
  chmodSync(program, 0o755);
  const environment = { NOTIFY_SOCKET: '/run/x', PATH: directory, ROOKERY_STORAGE_URL: 'secret' };
  createServiceManager(environment, { warn })('READY=1', 'ready');
  await vi.waitFor(() => expect(readFileSync(told, 'utf8')).toBe('READY=1|STATUS=ready|/run/x||'));
});

test('without a service manager nothing is started, and one that cannot be told does not matter', async () => {
  createServiceManager({ PATH: directory }, { warn })('READY=1', 'ready');
  createServiceManager({ NOTIFY_SOCKET: '/run/x', PATH: directory }, { warn })('STOPPING=1', '');
  await vi.waitFor(() => expect(warn).toHaveBeenCalledOnce());
  expect(existsSync(join(directory, 'told'))).toBe(false);
});
