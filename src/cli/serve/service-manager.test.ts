import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createServiceManager } from './run-server.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-notify-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const warn = vi.fn();

test("the notifier runs systemd-notify with the state, and without the service's settings", async () => {
  const told = join(directory, 'told');
  const program = join(directory, 'systemd-notify');
  writeFileSync(program, `#!/bin/sh\nprintf '%s|' "$@" "$NOTIFY_SOCKET" "$ROOKERY_STORAGE_URL" >${told}\n`);
  chmodSync(program, 0o755);
  const environment = { NOTIFY_SOCKET: '/run/x', PATH: directory, ROOKERY_STORAGE_URL: 'secret' };
  createServiceManager(environment, { info: warn, warn, error: warn })('READY=1', 'ready');
  await vi.waitFor(() => expect(readFileSync(told, 'utf8')).toBe('READY=1|STATUS=ready|/run/x||'));
});

test('the notifier does nothing without a service manager, and only warns when systemd-notify is missing', async () => {
  createServiceManager({ PATH: directory }, { info: warn, warn, error: warn })('READY=1', 'ready');
  createServiceManager({ NOTIFY_SOCKET: '/run/x', PATH: directory }, { info: warn, warn, error: warn })(
    'STOPPING=1',
    '',
  );
  await vi.waitFor(() => expect(warn).toHaveBeenCalledOnce());
  expect(existsSync(join(directory, 'told'))).toBe(false);
});
