import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { authority } from '../../test/parts/certificates.ts';
import { ConfigError } from './config.ts';
import { loadConfig, NO_FLAGS } from './env.ts';
import { SETTINGS } from './settings.ts';

const dir = mkdtempSync(join(tmpdir(), 'rookery-cluster-config-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function file(name: string, content: string, mode = 0o600): string {
  const path = join(dir, name);
  writeFileSync(path, content);
  chmodSync(path, mode);
  return path;
}

const SECRET = file('secret', `${'s'.repeat(32)}\n`);
const LISTEN = 'cluster.listen=127.0.0.1:7700';
/** Storage setting that replicas require. Empty when this build has no such setting. */
const STORAGE = 'storage.url' in SETTINGS ? ['storage.url=postgres://db.example/rookery'] : [];

const load = (sets: readonly string[]) => loadConfig({ ...NO_FLAGS, sets: [...STORAGE, ...sets] }, {});

async function problemsOf(...sets: readonly string[]): Promise<string> {
  const error = await load(sets).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ConfigError);
  const { problems } = error as ConfigError;
  expect(problems).toHaveLength(1);
  return problems[0] as string;
}

describe('the secret of replicas', () => {
  test('the secret of replicas is the content of its file without the newline', async () => {
    const config = await load([LISTEN, `cluster.secretFile=${SECRET}`]);
    expect(config.clusterIdentity).toEqual({ kind: 'secret', secret: Buffer.from('s'.repeat(32)) });
    expect(config.cluster.listen).toBe('127.0.0.1:7700');
    expect(config.ownPaths).toContain(SECRET);
  });

  test.each([0o640, 0o604, 0o660, 0o644])(
    'a secret file that users other than its owner can access is refused: %o',
    async mode => {
      const open = file(`open-${mode.toString(8)}`, 's'.repeat(32), mode);
      const problem = await problemsOf(LISTEN, `cluster.secretFile=${open}`);
      expect(problem).toContain(`cluster.secretFile: ${open} has the mode 0${mode.toString(8)}`);
      expect(problem).toContain('chmod 600');
    },
  );

  test.each([
    ['that is short', file('short', `${'s'.repeat(31)}\n`), /has 31 bytes.*at least 32/],
    ['whose file is missing', join(dir, 'missing'), /cannot read .*missing/],
  ])('a secret file %s is refused', async (_, path, text) => {
    expect(await problemsOf(LISTEN, `cluster.secretFile=${path}`)).toMatch(text);
  });
});

describe('mutual TLS', () => {
  const ca = authority('one');
  const { cert, key } = ca.issue('replica');
  const paths = { cert: file('cert', cert, 0o644), key: file('key', key), ca: file('ca', ca.cert, 0o644) };
  const sets = (given: Partial<typeof paths> = paths) =>
    Object.entries(given).map(([name, path]) => `cluster.tls.${name}File=${path}`);

  test('mutual TLS reads the three files', async () => {
    expect((await load([LISTEN, ...sets()])).clusterIdentity).toEqual({ kind: 'tls', cert, key, ca: ca.cert });
  });

  test('mutual TLS with two of its three files is refused', async () => {
    const problem = await problemsOf(LISTEN, ...sets({ cert: paths.cert, key: paths.key }));
    expect(problem).toMatch(/^cluster.tls.caFile is missing/);
  });

  test('mutual TLS with a key that others can read is refused', async () => {
    expect(await problemsOf(LISTEN, ...sets({ ...paths, key: file('open-key', key, 0o644) }))).toContain('chmod 600');
  });

  test('mutual TLS with the key of another certificate is refused', async () => {
    const other = file('other-key', ca.issue('other').key);
    expect(await problemsOf(LISTEN, ...sets({ ...paths, key: other }))).toContain('do not work together');
  });

  test('mutual TLS together with a secret is refused', async () => {
    const problem = await problemsOf(LISTEN, `cluster.secretFile=${SECRET}`, ...sets());
    expect(problem).toContain('are both set');
  });
});

describe('replicas', () => {
  test('a configuration without cluster.listen has no cluster identity', async () => {
    expect((await load([])).clusterIdentity).toBeNull();
  });

  test.each([
    ['neither a secret nor certificates', [LISTEN], /nothing to know each other by/],
    ['a secret and no listener', [`cluster.secretFile=${SECRET}`], /cluster.listen is not/],
    ['an address for others and no listener', ['cluster.advertise=a:1'], /cluster.listen is not/],
    [
      'a wildcard address without an advertised address',
      ['cluster.listen=0.0.0.0:7700', `cluster.secretFile=${SECRET}`],
      /advertise/,
    ],
    [
      'a wildcard address of IPv6 without an advertised address',
      ['cluster.listen=[::]:7700', `cluster.secretFile=${SECRET}`],
      /set cluster.advertise/,
    ],
    ['a port above 65535', ['cluster.listen=a:70000', `cluster.secretFile=${SECRET}`], /at most 65535/],
    ['an advertised port 0', [LISTEN, 'cluster.advertise=a:0', `cluster.secretFile=${SECRET}`], /from 1 to/],
    ['no worker among the roles', ['roles=frontend,meta'], /nothing could run/],
    ['no port', ['cluster.listen=host', `cluster.secretFile=${SECRET}`], /must be host:port/],
  ])('a configuration of replicas with %s is refused', async (_, sets, text) => {
    expect(await problemsOf(...sets)).toMatch(text);
  });

  test('an entry is disabled when its role is not listed', async () => {
    const config = await load([LISTEN, `cluster.secretFile=${SECRET}`, 'roles=worker']);
    expect(config).toMatchObject({ frontend: { enabled: false }, meta: { enabled: false }, roles: ['worker'] });
    const both = await load([LISTEN, `cluster.secretFile=${SECRET}`, 'roles=frontend', 'frontend.enabled=false']);
    expect(both.frontend.enabled).toBe(false);
  });

  test('an unknown role is refused with the list of roles', async () => {
    expect(await problemsOf('roles=worker,boss')).toContain('roles must be a list of frontend, meta and worker');
  });
});
