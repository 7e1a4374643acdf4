import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { findRegistryAuth } from './registry-auth.ts';

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-auth-'));
  vi.stubEnv('DOCKER_CONFIG', directory);
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(directory, { recursive: true, force: true });
});

function login(auths: Readonly<Record<string, string>>): void {
  const entries = Object.entries(auths).map(([name, text]) => [name, { auth: Buffer.from(text).toString('base64') }]);
  writeFileSync(join(directory, 'config.json'), JSON.stringify({ auths: Object.fromEntries(entries) }));
}

test('what `docker login` kept for the registry of the image', async () => {
  login({ 'reg.example.com:5000': 'me:pass:word', 'https://index.docker.io/v1/': 'hub:secret' });
  expect(await findRegistryAuth('reg.example.com:5000/a/b:1')).toEqual({
    username: 'me',
    password: 'pass:word',
    serveraddress: 'reg.example.com:5000',
  });
  for (const image of ['python:3.11', 'team/app']) {
    expect(await findRegistryAuth(image)).toMatchObject({ username: 'hub', password: 'secret' });
  }
});

test('nothing for a registry without a login, and without a configuration', async () => {
  expect(await findRegistryAuth('python')).toBeNull();
  login({ 'reg.example.com': 'me:x' });
  expect(await findRegistryAuth('other.example.com/a')).toBeNull();
});
