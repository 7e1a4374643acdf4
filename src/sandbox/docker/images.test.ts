import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Environment } from '../../core/environment.ts';
import { authorizePull, findRegistryAuth } from './images.ts';

let directory: string;
let environment: Environment;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-auth-'));
  environment = { DOCKER_CONFIG: directory };
});

afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

function login(auths: Readonly<Record<string, string>>): void {
  const entries = Object.entries(auths).map(([name, text]) => [name, { auth: Buffer.from(text).toString('base64') }]);
  writeFileSync(join(directory, 'config.json'), JSON.stringify({ auths: Object.fromEntries(entries) }));
}

test('findRegistryAuth returns the credentials of `docker login` for the registry of the image', async () => {
  login({ 'reg.example.com:5000': 'me:pass:word', 'https://index.docker.io/v1/': 'hub:secret' });
  expect(await findRegistryAuth('reg.example.com:5000/a/b:1', environment)).toEqual({
    username: 'me',
    password: 'pass:word',
    serveraddress: 'reg.example.com:5000',
  });
  for (const image of ['python:3.11', 'team/app']) {
    expect(await findRegistryAuth(image, environment)).toMatchObject({ username: 'hub', password: 'secret' });
  }
});

test('findRegistryAuth returns null without a login and without a configuration', async () => {
  expect(await findRegistryAuth('python', environment)).toBeNull();
  login({ 'reg.example.com': 'me:x' });
  expect(await findRegistryAuth('other.example.com/a', environment)).toBeNull();
});

test.each([
  ['python:3.11', 'docker.io'],
  ['team/app', 'docker.io'],
  ['docker.io/library/python', 'docker.io'],
  ['index.docker.io/team/app', 'docker.io'],
  ['ghcr.io/team/app', 'ghcr.io'],
])('authorizePull for %s trusts the public registry %s', async (image, registry) => {
  for (const onlyNamed of [false, true]) {
    expect(await authorizePull(image, { named: null, onlyNamed }, environment)).toEqual({ registry, isTrusted: true });
  }
});

test.each([
  ['127.0.0.1:5000/a', '127.0.0.1:5000'],
  ['169.254.169.254/latest/meta-data', '169.254.169.254'],
  ['[::1]:80/a', '[::1]:80'],
  ['localhost/a', 'localhost'],
  ['INTRANET/a', 'INTRANET'],
  ['ghcr.io.example.com/a', 'ghcr.io.example.com'],
  ['docker.io:444/a', 'docker.io:444'],
])('authorizePull for %s uses no token server for an unlisted registry, or refuses', async (image, registry) => {
  expect(await authorizePull(image, { named: null, onlyNamed: false }, environment)).toEqual({
    authconfig: { registrytoken: 'none', serveraddress: registry },
    registry,
    isTrusted: false,
  });
  expect(await authorizePull(image, { named: null, onlyNamed: true }, environment)).toBeNull();
  expect(await authorizePull(image, { named: ['docker.io'], onlyNamed: true }, environment)).toBeNull();
  expect(await authorizePull(image, { named: [registry], onlyNamed: true }, environment)).toEqual({
    registry,
    isTrusted: true,
  });
});

test('authorizePull refuses Docker Hub when the list omits Docker Hub, and trusts a logged-in registry', async () => {
  const rules = { named: ['reg.example.com'], onlyNamed: true };
  expect(await authorizePull('python', rules, environment)).toBeNull();
  login({ 'other.example.com': 'me:x' });
  expect(await authorizePull('other.example.com/a', rules, environment)).toMatchObject({ isTrusted: true });
});
