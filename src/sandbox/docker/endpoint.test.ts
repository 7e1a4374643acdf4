import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findEndpoint, socketPathOf } from './endpoint.ts';

let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'rookery-home-'));
});

afterEach(() => {
  rmSync(home, { recursive: true, force: true });
});

function writeContext(name: string, host: unknown, certificates: readonly string[] = []): void {
  const id = createHash('sha256').update(name).digest('hex');
  const meta = join(home, '.docker', 'contexts', 'meta', id);
  mkdirSync(meta, { recursive: true });
  writeFileSync(join(meta, 'meta.json'), JSON.stringify({ Name: name, Endpoints: { docker: { Host: host } } }));
  if (certificates.length === 0) return;
  const tls = join(home, '.docker', 'contexts', 'tls', id, 'docker');
  mkdirSync(tls, { recursive: true });
  for (const file of certificates) writeFileSync(join(tls, file), file);
}

function writeConfig(config: object): void {
  mkdirSync(join(home, '.docker'), { recursive: true });
  writeFileSync(join(home, '.docker', 'config.json'), JSON.stringify(config));
}

const hostOf = async (setting: string | null, env: Record<string, string> = {}) =>
  (await findEndpoint(setting, env, home)).host;

describe('findEndpoint', () => {
  test('findEndpoint returns the default socket without a setting, a variable or a context', async () => {
    expect(await hostOf(null)).toBe('unix:///var/run/docker.sock');
    writeConfig({ currentContext: 'default' });
    expect(await hostOf(null)).toBe('unix:///var/run/docker.sock');
  });

  test('the setting takes precedence over DOCKER_HOST, and DOCKER_HOST over contexts', async () => {
    writeContext('mine', 'unix:///context.sock');
    writeContext('other', 'unix:///other.sock');
    writeConfig({ currentContext: 'mine' });
    expect(await hostOf(null)).toBe('unix:///context.sock');
    expect(await hostOf(null, { DOCKER_CONTEXT: 'other' })).toBe('unix:///other.sock');
    expect(await hostOf(null, { DOCKER_CONTEXT: 'other', DOCKER_HOST: 'unix:///host.sock' })).toBe('unix:///host.sock');
    expect(await hostOf('unix:///set.sock', { DOCKER_HOST: 'unix:///host.sock' })).toBe('unix:///set.sock');
  });

  test('the context default selects the default socket, whatever the configuration contains', async () => {
    writeContext('mine', 'unix:///context.sock');
    writeConfig({ currentContext: 'mine' });
    expect(await hostOf(null, { DOCKER_CONTEXT: 'default' })).toBe('unix:///var/run/docker.sock');
  });

  test('findEndpoint reads the configuration from DOCKER_CONFIG', async () => {
    writeContext('mine', 'unix:///context.sock');
    writeConfig({ currentContext: 'mine' });
    const env = { DOCKER_CONFIG: join(home, 'elsewhere') };
    expect(await hostOf(null, env)).toBe('unix:///var/run/docker.sock');
  });

  test('findEndpoint accepts a plain path as a socket', async () => {
    expect(socketPathOf(await findEndpoint('/run/x.sock', {}, home))).toBe('/run/x.sock');
  });
});

describe('findEndpoint over TCP', () => {
  test('findEndpoint accepts loopback addresses with and without TLS', async () => {
    expect((await findEndpoint('tcp://127.0.0.1:2375', {}, home)).connection).toEqual({
      protocol: 'http',
      host: '127.0.0.1',
      port: 2375,
    });
    mkdirSync(join(home, 'certificates'));
    for (const file of ['ca.pem', 'cert.pem', 'key.pem']) writeFileSync(join(home, 'certificates', file), file);
    const env = { DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: join(home, 'certificates') };
    expect((await findEndpoint('tcp://localhost:2376', env, home)).connection).toEqual({
      protocol: 'https',
      host: 'localhost',
      port: 2376,
      ca: Buffer.from('ca.pem'),
      cert: Buffer.from('cert.pem'),
      key: Buffer.from('key.pem'),
    });
  });

  test('findEndpoint reads the certificates of a context', async () => {
    writeContext('mine', 'tcp://[::1]:2376', ['ca.pem']);
    const { connection } = await findEndpoint(null, { DOCKER_CONTEXT: 'mine' }, home);
    expect(connection).toEqual({ protocol: 'https', host: '::1', port: 2376, ca: Buffer.from('ca.pem') });
  });

  test('findEndpoint refuses a daemon on another machine', async () => {
    await expect(hostOf('tcp://10.0.0.1:2375')).rejects.toThrow(
      'the Docker daemon must be on this machine, since containers and server share directories; got "tcp://10.0.0.1:2375"',
    );
  });
});

test.each(['ssh://host', 'nonsense', 'npipe:////./pipe/docker_engine'])('findEndpoint refuses %s', async host => {
  await expect(hostOf(host)).rejects.toThrow(
    `the Docker host must be unix:///path or tcp://127.0.0.1:port, got "${host}"`,
  );
});

test('findEndpoint names a missing context in its error', async () => {
  await expect(hostOf(null, { DOCKER_CONTEXT: 'missing' })).rejects.toThrow(
    /^the Docker context missing names no host: /,
  );
});
