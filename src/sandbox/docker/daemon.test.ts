import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { findPythonDir } from '../../lib/own-paths.ts';
import type { BridgeRules } from './bridge-rules.ts';
import { askDaemon, SecurityOptions } from './daemon.ts';
import { Engine } from './engine.ts';

const disposals: (() => void)[] = [];

afterEach(() => {
  for (const dispose of disposals.splice(0)) dispose();
});

/** Starts a fake daemon that reports `info`; returns its facts and the security options. */
async function ask(info: object) {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-daemon-'));
  const socket = join(directory, 'socket');
  const server = http.createServer((_request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ OSType: 'linux', ...info }));
  });
  await new Promise<void>(resolve => server.listen(socket, resolve));
  const engine = await Engine.open(`unix://${socket}`, {});
  disposals.push(() => {
    engine.close();
    server.close();
    rmSync(directory, { recursive: true });
  });
  const facts = await askDaemon(engine, { missing: async () => null } as unknown as BridgeRules);
  return { facts, options: await new SecurityOptions(engine, findPythonDir()).get() };
}

test.each([
  ['x86_64', 'name=seccomp,profile=default'],
  ['aarch64', 'name=seccomp,profile=builtin'],
  ['x86_64', 'name=seccomp,profile=unconfined'],
])('a container gets the system call filter of Rookery on %s with %s', async (architecture, option) => {
  const { facts, options } = await ask({ Architecture: architecture, SecurityOptions: [option] });
  expect(facts.isolation).toContain('seccomp');
  expect(facts.degraded).toEqual([]);
  expect(options).toEqual(['no-new-privileges', expect.stringMatching(/^seccomp=\{.*\}$/)]);
  expect(JSON.parse((options[1] ?? '').slice('seccomp='.length))).toMatchObject({ defaultAction: 'SCMP_ACT_ERRNO' });
});

test.each([
  [
    'without seccomp',
    { Architecture: 'x86_64', SecurityOptions: ['name=apparmor'] },
    /^system calls are not filtered: the daemon runs without seccomp$/,
  ],
  [
    'of another architecture',
    { Architecture: 's390x', SecurityOptions: ['name=seccomp,profile=default'] },
    /^system calls are filtered by the daemon’s own rules alone, .*: ours are for x86_64 and aarch64$/,
  ],
])(
  'a daemon %s gets no system call filter of Rookery, and the facts of the sandbox name the missing layer',
  async (_what, info, sentence) => {
    const { facts, options } = await ask(info);
    expect(facts.isolation).not.toContain('seccomp');
    expect(facts.degraded).toEqual([expect.stringMatching(sentence)]);
    expect(options).toEqual(['no-new-privileges']);
  },
);
