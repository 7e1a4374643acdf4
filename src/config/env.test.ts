import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Environment } from '../core/environment.ts';
import { ConfigError } from './config.ts';
import { type ConfigFlags, loadConfig, NO_FLAGS } from './env.ts';

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'rookery-config-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

let fileCount = 0;
function file(content: string, name = `rookery-${++fileCount}.yaml`): string {
  const path = join(dir, name);
  writeFileSync(path, content);
  return path;
}

const SECRET = 'x'.repeat(32);

interface Given extends Partial<ConfigFlags> {
  readonly yaml?: string;
  readonly environment?: Environment;
}

function load({ yaml, environment = {}, ...flags }: Given) {
  return loadConfig({ ...NO_FLAGS, ...(yaml === undefined ? {} : { file: file(yaml) }), ...flags }, environment);
}

async function problemsOf(given: Given): Promise<readonly string[]> {
  const error = await load(given).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ConfigError);
  return (error as ConfigError).problems;
}

describe('a removed setting', () => {
  test.each<Given>([
    { yaml: 'lowCpuLatency: false\n' },
    { environment: { ROOKERY_LOW_CPU_LATENCY: 'false' } },
    { sets: ['lowCpuLatency=false'] },
  ])('a removed setting is accepted with a warning when it is given by %j', async given => {
    const { warnings } = await load(given);
    expect(warnings).toEqual([expect.stringMatching(/^lowCpuLatency was removed and has no effect \(.+\)\. Use /)]);
  });
});

describe('sources of settings', () => {
  test('a configuration without any source has the defaults', async () => {
    const config = await load({});
    expect(config).toMatchObject({ host: '127.0.0.1', port: 8888, metaPort: 31182, auth: null });
  });

  test('a flag wins over the environment, the environment over the file, the file over the default', async () => {
    const yaml = 'port: 1\nmetaPort: 1001\ncreateTimeoutMs: 5000\n';
    const environment = { ROOKERY_PORT: '2', ROOKERY_META_PORT: '1002' };
    const config = await load({ yaml, environment, flags: { port: '3' } });
    expect(config).toMatchObject({ port: 3, metaPort: 1002, createTimeoutMs: 5000, stopGraceMs: 30_000 });
  });

  test('a separate flag wins over --set, and a later --set over an earlier one', async () => {
    const config = await load({ flags: { port: '3' }, sets: ['port=4', 'metaPort=5', 'metaPort=6'] });
    expect(config).toMatchObject({ port: 3, metaPort: 6 });
  });

  test('ROOKERY_CONFIG names the file when no flag does', async () => {
    const environment = { ROOKERY_CONFIG: file('port: 77\n') };
    expect((await load({ environment })).port).toBe(77);
  });

  test('an empty environment variable counts as unset', async () => {
    expect((await load({ environment: { ROOKERY_PORT: '' } })).port).toBe(8888);
  });

  test('a dotted name and a nested name set the same setting in the file', async () => {
    const nested = await load({ yaml: 'log:\n  level: debug\n' });
    const dotted = await load({ yaml: 'log.level: debug\n' });
    expect(nested.log.level).toBe('debug');
    expect({ ...dotted, ownPaths: [], sources: {} }).toEqual({ ...nested, ownPaths: [], sources: {} });
  });

  test('null, an empty group and an empty file leave the defaults', async () => {
    expect((await load({ yaml: 'port: null\nlog:\n' })).port).toBe(8888);
    expect((await load({ yaml: '' })).port).toBe(8888);
  });

  test('an absent mounts.allow differs from an empty one', async () => {
    expect((await load({})).mounts.allow).toBeNull();
    expect((await load({ sets: ['mounts.allow='] })).mounts.allow).toEqual([]);
    expect((await load({ sets: ['mounts.allow=/srv,/home/ann'] })).mounts.allow).toEqual(['/srv', '/home/ann']);
    expect((await load({ yaml: 'mounts: {allow: [/srv]}\n' })).mounts.allow).toEqual(['/srv']);
    for (const wrong of ['srv', '/srv/../etc', './x'])
      expect(await problemsOf({ sets: [`mounts.allow=${wrong}`] })).toEqual([
        expect.stringContaining('mounts.allow must be a list of absolute paths without "..", not'),
      ]);
  });

  test('commas separate the items of lists and maps in variables and flags', async () => {
    const environment = { ROOKERY_ALLOWED_HOSTS: 'a.example, b.example' };
    const config = await load({ environment, sets: ['process.pythons=3.11=/a/python,3.12=/b/python'] });
    expect(config.allowedHosts).toEqual(['a.example', 'b.example']);
    expect(config.process.pythons).toEqual({ '3.11': '/a/python', '3.12': '/b/python' });
  });

  test('settings with parts of Kubernetes objects have the form of Kubernetes, and are JSON in text', async () => {
    const tolerations = [{ key: 'a', operator: 'Exists' }];
    const sets = [`kubernetes.pod.tolerations=${JSON.stringify(tolerations)}`];
    expect((await load({ sets })).kubernetes.pod.tolerations).toEqual(tolerations);
    const yaml = 'kubernetes: {pod: {nodeSelector: {a.example/disk: ssd}, volumes: [{name: v, emptyDir: {}}]}}\n';
    expect((await load({ yaml })).kubernetes.pod).toEqual({
      ...{ nodeSelector: { 'a.example/disk': 'ssd' }, tolerations: [], runtimeClass: null },
      ...{ volumes: [{ name: 'v', emptyDir: {} }], volumeMounts: [] },
    });
    expect(await problemsOf({ sets: ['kubernetes.pod.volumes=v'] })).toEqual([
      expect.stringContaining(
        'kubernetes.pod.volumes must be a list of volumes as Kubernetes has them, as JSON, not "v"',
      ),
    ]);
  });

  test('camel case becomes snake case in the name of the variable', async () => {
    const environment = { ROOKERY_MAX_WAITING_CALLS: '7', ROOKERY_PROCESS_SPARES: '9' };
    const config = await load({ environment });
    expect(config.maxWaitingCalls).toBe(7);
    expect(config.process.spares).toBe(9);
  });

  test('variables of OpenTelemetry set the trace collector, and variables of Rookery take precedence', async () => {
    const endpoint = async (environment: Record<string, string>) => (await load({ environment })).tracing.endpoint;
    const base = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' };
    const whole = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://t/x' };
    expect(await endpoint(base)).toBe('http://c:4318/v1/traces');
    expect(await endpoint({ OTEL_EXPORTER_OTLP_ENDPOINT: 'https://c/otlp/' })).toBe('https://c/otlp/v1/traces');
    expect(await endpoint({ ...base, ...whole })).toBe('https://t/x');
    expect(await endpoint({ ...base, ...whole, ROOKERY_TRACING_ENDPOINT: 'http://own:1' })).toBe('http://own:1');
    for (const off of [
      { OTEL_SDK_DISABLED: 'true' },
      { OTEL_TRACES_EXPORTER: 'none' },
      { ...whole, ...base, OTEL_SDK_DISABLED: 'TRUE' },
    ]) {
      expect(await endpoint({ ...base, ...off })).toBe('');
    }
    await expect(endpoint({ OTEL_EXPORTER_OTLP_ENDPOINT: 'c:4318' })).rejects.toThrow(
      /tracing\.endpoint must be an http.*OTEL_EXPORTER_OTLP_ENDPOINT/,
    );
  });

  test('variables from Kubernetes, a sandbox or the command line are not read as settings', async () => {
    const environment = {
      ROOKERY_PORT: 'tcp://10.0.0.1:8888',
      ROOKERY_PORT_8888_TCP_ADDR: '10.0.0.1',
      ROOKERY_SERVICE_HOST: '10.0.0.1',
      ROOKERY_SERVICE_PORT_HTTP: '8888',
      ROOKERY_INSTANCE_ID: 'x',
      ROOKERY_TOKEN: 'x',
      PATH: '/bin',
    };
    expect((await load({ environment })).port).toBe(8888);
  });
});

describe('relative paths', () => {
  test('a relative path in the file starts at the directory of the file', async () => {
    expect((await load({ yaml: 'dataDir: data\n' })).dataDir).toBe(join(dir, 'data'));
  });

  test('a relative path in a flag starts at the working directory', async () => {
    expect((await load({ flags: { dataDir: 'data' } })).dataDir).toBe(join(process.cwd(), 'data'));
  });

  test('a path that starts with ~ is below the home directory', async () => {
    expect((await load({ flags: { dataDir: '~/rookery' } })).dataDir).toBe(join(homedir(), 'rookery'));
  });
});

describe('paths that are the service’s own', () => {
  test('the service’s own paths are the configuration file, every path of a setting, and sockets', async () => {
    const yaml =
      'jwt: {secretFile: secret}\nsupervisor: {credentialsFile: /srv/credentials, url: "unix:///srv/supervisor.sock"}\n';
    const environment = { ROOKERY_CONFIG: file(yaml, 'own.yaml') };
    const { ownPaths } = await load({
      environment,
      sets: ['docker.host=unix:///srv/engine.sock', 'dataDir=/srv/data'],
    });
    expect(ownPaths).toEqual(
      expect.arrayContaining([
        ...[join(dir, 'own.yaml'), join(dir, 'secret'), '/srv/credentials', '/srv/supervisor.sock'],
        ...['/srv/engine.sock', '/srv/data', '/etc/supervisor/conf.d'],
      ]),
    );
  });
});

describe('errors of the configuration', () => {
  test('all errors are reported together, each with the expected value and the place', async () => {
    const yaml = 'prot: 80\nport: "80"\njwt:\n  secretfile: x\nlog: 5\n';
    const sets = ['a', 'slowcallms=5', 'metaPort=70000'];
    const problems = await problemsOf({ yaml, sets, environment: { ROOKERY_ENABLE_FUNC_TOKEN_AUHT: '1' } });
    const where = `rookery-${fileCount}.yaml`;
    expect(problems).toEqual([
      `log must be a map of settings (${where}:5).`,
      'The environment variable ROOKERY_ENABLE_FUNC_TOKEN_AUHT is not a setting. Did you mean ROOKERY_ENABLE_FUNC_TOKEN_AUTH?',
      '--set takes a setting and its value, as in --set jwt.issuer=me, not "a".',
      `prot is not a setting (${where}:1). Did you mean port?`,
      `port must be a whole number from 0 to 65535, not "80" (${where}:2).`,
      `jwt.secretfile is not a setting (${where}:4). Did you mean jwt.secretFile?`,
      'slowcallms is not a setting (--set). Did you mean slowCallMs?',
      'metaPort must be a whole number from 0 to 65535, not "70000" (--set).',
    ]);
  });

  test.each([
    ['enable_func_token_auth: yes please', 'enable_func_token_auth must be true or false'],
    ['enable_func_token_auth: "true"', 'enable_func_token_auth must be true or false'],
    ['port: 8.5', 'port must be a whole number from 0 to 65535'],
    ['allowedHosts: example.com', 'allowedHosts must be a list of host names'],
    ['allowedHosts: ["http://x"]', 'allowedHosts must be a list of host names'],
    ['clusters: []', 'clusters must be a list of at least one of names of 1 to 64 characters'],
    ['clusters: ["[]"]', 'clusters must be a list of names of 1 to 64 characters without spaces, commas and brackets'],
    ['log: {level: loud}', 'log.level must be one of trace, debug'],
    ['process: {pythons: {python3: /x}}', 'process.pythons must be a map from a Python version'],
    ['business: "a:b"', 'business must be 1 to 64 letters'],
    ['defaultExecutor: jail', 'defaultExecutor must be one of process, docker, supervisor, kubernetes'],
    [
      'kubernetes: {pod: {tolerations: [{operator: Some}]}}',
      'kubernetes.pod.tolerations must be a list of tolerations as Kubernetes has them (it[0].operator must be one of',
    ],
    ['kubernetes: {pod: {nodeSelector: {a: "x y"}}}', 'must be a map of labels of nodes (it.a must be a label value'],
    ['dataDir: 5', 'dataDir must be a path'],
    ['- a\n- b', 'the file must be a map of settings'],
    ['port: 1\nport: 2', 'is not YAML: Map keys must be unique'],
    ['port: [1', 'is not YAML'],
    ['__proto__: 1', '__proto__ is not a setting'],
    ['toString: 1', 'toString is not a setting'],
  ])('a file with %j is refused with one error that names the expected value', async (yaml, sentence) => {
    const problems = await problemsOf({ yaml });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(sentence);
  });

  test('a missing configuration file is refused', async () => {
    const missing = join(dir, 'nowhere.yaml');
    const [problem] = await problemsOf({ file: missing });
    expect(problem).toContain(`The configuration file ${missing} cannot be read (ENOENT`);
  });

  test('no error of the configuration contains the value of a secret', async () => {
    const problems = await problemsOf({ yaml: 'jwt: {secret: 12345}\n' });
    expect(problems.join()).not.toContain('12345');
  });
});

describe('contradictions between settings', () => {
  test('an address that is not loopback is refused without authentication and without --insecure', async () => {
    const problems = await problemsOf({ flags: { host: '0.0.0.0', metaHost: '10.1.2.3' } });
    expect(problems).toHaveLength(2);
    expect(problems[0]).toMatch(/^host is 0\.0\.0\.0, which is not a loopback address, and authentication is off/);
    expect(problems[1]).toMatch(/^metaHost is 10\.1\.2\.3/);
  });

  test.each([{ insecure: 'true' }, { enable_func_token_auth: 'true', 'jwt.secret': SECRET }])(
    'an address that is not loopback is accepted with %j',
    async flags => {
      expect((await load({ flags: { host: '0.0.0.0', ...flags } })).host).toBe('0.0.0.0');
    },
  );

  test.each(['127.0.0.1', '127.8.8.8', '::1', 'localhost'])(
    'the host %s is accepted without authentication',
    async host => {
      expect((await load({ flags: { host } })).host).toBe(host);
    },
  );

  test.each(['localhost.example.com', '127.0.0.1.example.com', '::', '128.0.0.1'])(
    'the host %s is refused without authentication',
    async host => {
      expect(await problemsOf({ flags: { host } })).toHaveLength(1);
    },
  );

  test('an entry that is switched off accepts any address', async () => {
    const config = await load({ flags: { metaHost: '0.0.0.0' }, sets: ['meta.enabled=false'] });
    expect(config.meta.enabled).toBe(false);
  });

  test('a port of both entries is refused, except the free port or different addresses', async () => {
    const flags = { port: '7', metaPort: '7' };
    expect(await problemsOf({ flags })).toEqual([
      'port and metaPort are both 7: each entry needs a port of its own (0 takes any free one).',
    ]);
    expect(await problemsOf({ flags: { ...flags, host: '0.0.0.0', insecure: 'true' } })).toHaveLength(1);
    expect((await load({ flags: { port: '0', metaPort: '0' } })).port).toBe(0);
    expect((await load({ flags: { ...flags, metaHost: '10.0.0.1', insecure: 'true' } })).port).toBe(7);
  });

  test('contradictions between values, ports and keys are reported together', async () => {
    const flags = { port: '7', metaPort: '7', enable_func_token_auth: 'true', 'jwt.secret': 'short' };
    const problems = (await problemsOf({ flags, yaml: 'jwt:\n  issuer: 5\n' })).join('\n');
    for (const part of ['port and metaPort', 'jwt.secret has 5 bytes', 'jwt.issuer must be'])
      expect(problems).toContain(part);
  });

  test('two keys of which one is invalid are refused with every problem', async () => {
    const sets = ['jwt.secret=short', 'jwt.jwksUrl=http://keys.example'];
    const problems = await problemsOf({ flags: { enable_func_token_auth: 'true' }, sets });
    expect(problems).toHaveLength(3);
  });

  test('a configuration with both entries switched off is refused', async () => {
    const problems = await problemsOf({ sets: ['frontend.enabled=false', 'meta.enabled=false'] });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain('nothing would be served');
  });

  test('an invalid setting is reported alone, without contradictions that follow from it', async () => {
    const problems = await problemsOf({ flags: { host: '0.0.0.0' }, sets: ['enable_func_token_auth=maybe'] });
    expect(problems).toHaveLength(1);
  });
});

describe('authentication', () => {
  const on = 'enable_func_token_auth: true\n';

  test('authentication without a key is refused', async () => {
    const [problem] = await problemsOf({ yaml: on });
    expect(problem).toContain('there is no key to verify tokens with: set one of jwt.secret, jwt.secretFile');
  });

  test('an invalid switch does not hide the error about the key', async () => {
    const problems = await problemsOf({ sets: ['enable_func_token_auth=maybe', 'jwt.secretFile=/nowhere/secret'] });
    expect(problems).toHaveLength(2);
    expect(problems.join()).toMatch(/enable_func_token_auth must be .*jwt\.secretFile/s);
  });

  test('two kinds of key are refused, also when authentication is off', async () => {
    const sets = [`jwt.secret=${SECRET}`, 'jwt.jwksUrl=https://x.example/jwks'];
    expect(await problemsOf({ sets })).toEqual([
      'jwt.secret and jwt.jwksUrl are all set: one key is used, so set only one of them.',
    ]);
  });

  test('a secret of 31 bytes is too short, and the newline at the end of its file does not count', async () => {
    const short = file(`${'x'.repeat(31)}\n`, 'short.secret');
    const [problem] = await problemsOf({ yaml: `${on}jwt: {secretFile: short.secret}\n` });
    expect(problem).toContain(`jwt.secretFile: ${short} has 31 bytes, and a secret needs at least 32`);
  });

  test.each(['\n', '\r\n', ''])('a secret file that ends with %j is read without the newline', async end => {
    file(SECRET + end, 'good.secret');
    const config = await load({ yaml: `${on}jwt: {secretFile: good.secret, issuer: me, audience: you}\n` });
    expect(config.auth?.issuer).toBe('me');
    expect(config.auth?.audience).toBe('you');
    const key = config.auth?.key;
    expect(key?.kind === 'secret' && new TextDecoder().decode(key.secret)).toBe(SECRET);
  });

  test.each([
    [0o644, /jwt\.secretFile: .*mode 0644.*chmod 600 /],
    [0o600, null],
  ])('a secret file warns when its mode %o lets others read it', async (mode, warning) => {
    chmodSync(file(SECRET, 'read.secret'), mode);
    const { auth } = await load({ yaml: `${on}jwt: {secretFile: read.secret}\n` });
    expect(auth?.warning).toEqual(warning === null ? null : expect.stringMatching(warning));
  });

  test('a secret and the switch of authentication are read from variables', async () => {
    const config = await load({
      environment: { ROOKERY_JWT_SECRET: SECRET, ROOKERY_ENABLE_FUNC_TOKEN_AUTH: 'true' },
    });
    expect(config.auth?.key.kind).toBe('secret');
    expect(JSON.stringify({ ...config, auth: null })).not.toContain(SECRET);
  });

  test('an unreadable key file is refused', async () => {
    const [problem] = await problemsOf({ yaml: `${on}jwt: {publicKeyFile: nowhere.pem}\n` });
    expect(problem).toContain(`jwt.publicKeyFile: cannot read ${join(dir, 'nowhere.pem')} (ENOENT`);
  });

  const pairs = {
    rsa: generateKeyPairSync('rsa', { modulusLength: 2048 }),
    ec: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    ed25519: generateKeyPairSync('ed25519'),
  };

  test.each(Object.entries(pairs))('a public key of type %s is accepted', async (name, { publicKey }) => {
    const path = file(publicKey.export({ type: 'spki', format: 'pem' }).toString(), `${name}.pem`);
    const { auth } = await load({ yaml: `${on}jwt: {publicKeyFile: ${path}}\n` });
    expect(auth?.key.kind).toBe('publicKey');
  });

  test('a private key, an empty file, a short key and an unsupported curve are each refused', async () => {
    const short = generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey;
    const curve = generateKeyPairSync('ec', { namedCurve: 'P-384' }).publicKey;
    const spki = { type: 'spki', format: 'pem' } as const;
    const cases = [
      [pairs.ec.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), 'holds a private key'],
      ['hello', 'is not a public key in PEM'],
      [short.export(spki).toString(), 'it must be RSA (at least 2048 bits)'],
      [curve.export(spki).toString(), 'cannot be used (ec secp384r1)'],
    ] as const;
    for (const [content, sentence] of cases) {
      const [problem] = await problemsOf({ yaml: `${on}jwt: {publicKeyFile: ${file(content, 'bad.pem')}}\n` });
      expect(problem).toContain(sentence);
    }
  });

  test.each(['https://x.example/jwks', 'http://127.0.0.1:9/jwks', 'http://localhost/jwks'])(
    'a JWKS URL %s is accepted',
    async url => {
      const { auth } = await load({ yaml: on, sets: [`jwt.jwksUrl=${url}`] });
      expect(auth?.key).toEqual({ kind: 'jwks', url });
    },
  );

  test.each(['http://x.example/jwks', 'ftp://x/jwks', 'jwks'])('a JWKS URL %s is refused', async url => {
    const [problem] = await problemsOf({ yaml: on, sets: [`jwt.jwksUrl=${url}`] });
    expect(problem).toContain('must be an https URL');
  });
});

test('the configuration is frozen at every level', async () => {
  const config = await load({ yaml: `enable_func_token_auth: true\njwt: {secret: ${SECRET}}\n` });
  expect(() => Object.assign(config, { port: 1 })).toThrow(TypeError);
  expect(() => Object.assign(config.process, { spares: 1 })).toThrow(TypeError);
  expect(() => (config.clusters as string[]).push('x')).toThrow(TypeError);
  expect(Object.isFrozen(config.auth)).toBe(true);
});
