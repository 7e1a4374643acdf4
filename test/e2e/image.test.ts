import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { ROOT } from '../../scripts/command.ts';
import { DOCKER_START_MS, type SharedDocker, sharedDocker } from '../parts/docker-shared.ts';
import { IMAGE_MAKE_MS, productImage } from '../parts/kubernetes-image.ts';
import { missingTerms } from '../parts/package-terms.ts';
import { describeWith } from '../probe.ts';

interface Compose {
  readonly services: { readonly rookery: ComposeService };
}

interface ComposeService {
  readonly image: string;
  readonly ports: readonly string[];
  readonly volumes: readonly string[];
  readonly security_opt: readonly string[];
}

const COMPOSE = (parse(readFileSync(join(ROOT, 'deploy/compose.yaml'), 'utf8')) as Compose).services.rookery;
const UNCONFINED = ['seccomp', 'apparmor', 'systempaths'].flatMap(what => ['--security-opt', `${what}=unconfined`]);

describeWith(['docker'], 'the image of the server', () => {
  let shared: SharedDocker;
  let image: string;
  const containers: string[] = [];
  beforeAll(async () => {
    shared = await sharedDocker();
    const { name, file } = await productImage(shared.host);
    await shared.docker('load', '--input', file);
    image = name;
  }, DOCKER_START_MS + IMAGE_MAKE_MS);
  afterAll(async () => {
    if (containers.length > 0) await shared.docker('rm', '--force', '--volumes', ...containers);
  });

  test.each([
    { container: 'a plain one', options: [], isIsolated: false },
    { container: 'one that may make namespaces', options: UNCONFINED, isIsolated: true },
  ])(
    'the image serves agents in a container, $container, as docs/start/install.md says',
    async ({ options, isIsolated }) => {
      const id = await shared.docker('run', '--detach', ...options, image, 'rookery', 'serve');
      containers.push(id);
      const rookery = (...args: readonly string[]) => shared.docker('exec', id, 'rookery', ...args);
      await expect.poll(() => shared.docker('logs', id), { timeout: 60_000 }).toMatch(/^ready /m);
      const code = '/opt/rookery/examples/hello';
      await rookery('agent', 'create', 'hello', '--code', code, '--code-path', code, '--handler', 'handler.handle');
      expect(await rookery('agent', 'invoke', 'hello', '{"name": "Ada"}')).toBe('{"message":"Hello, Ada!","calls":1}');
      const init = await rookery('agent', 'exec', 'hello', '--', 'cat', '/proc/1/cmdline');
      // A sandbox without its own process namespace sees the processes of the container.
      expect(init.includes('serve')).toBe(!isIsolated);
      await rookery('agent', 'delete', 'hello');
      await shared.docker('stop', '--time', '60', id);
      expect(await shared.docker('logs', id)).toContain('stopped: no agent is left');
    },
  );

  test('the image without a command serves on a published port with a token that it prints once', async () => {
    const id = await shared.docker('run', '--detach', '--publish', '127.0.0.1::8888', image);
    containers.push(id);
    const logs = () => shared.docker('logs', id);
    await expect.poll(logs, { timeout: 60_000 }).toMatch(/^ready /m);
    expect(await logs()).toContain('address: http://localhost:8888');
    const token = /^token: (\S+)$/m.exec(await logs())?.[1];
    const call = async (headers: Readonly<Record<string, string>>) => {
      const address = await shared.docker('port', id, '8888/tcp');
      return (await fetch(`http://${address}/api/agent`, { headers })).status;
    };
    expect(await call({ authorization: `Bearer ${token}` })).toBe(200);
    expect(await call({})).toBe(401);
    const code = '/opt/rookery/examples/hello';
    const rookery = (...args: readonly string[]) => shared.docker('exec', id, 'rookery', ...args);
    await rookery('agent', 'create', 'hello', '--code', code, '--code-path', code, '--handler', 'handler.handle');
    expect(await rookery('agent', 'invoke', 'hello', '{"name": "Ada"}')).toContain('Hello, Ada!');
    await expect
      .poll(() => shared.docker('inspect', '--format', '{{.State.Health.Status}}', id), { timeout: 60_000 })
      .toBe('healthy');
    await shared.docker('restart', '--time', '60', id);
    await expect.poll(async () => (await logs()).match(/^ready /gm)?.length, { timeout: 60_000 }).toBe(2);
    expect((await logs()).match(/^token: /gm)).toHaveLength(1);
    expect(await call({ authorization: `Bearer ${token}` })).toBe(200);
  });

  test('the image contains Node 24 and the licences of its parts, and declares its ports and its volume', async () => {
    const [described] = JSON.parse(await shared.docker('image', 'inspect', image));
    expect(Object.keys(described.Config.ExposedPorts)).toEqual(['31182/tcp', '8888/tcp']);
    expect(Object.keys(described.Config.Volumes)).toEqual(['/var/lib/rookery']);
    const look = 'node --version; ls /usr/share/doc/*/copyright';
    const output = await shared.docker('run', '--rm', image, 'sh', '-c', look);
    expect(output).toMatch(/^v24\./);
    expect(output).toContain('/usr/share/doc/libc6/copyright');
    const copied = mkdtempSync(join(tmpdir(), 'rookery-image-'));
    try {
      const id = await shared.docker('create', image);
      containers.push(id);
      await shared.docker('cp', `${id}:/opt/rookery`, copied);
      expect(missingTerms({ library: join(copied, 'rookery'), hasNode: true })).toEqual([]);
    } finally {
      rmSync(copied, { recursive: true, force: true });
    }
  });

  test('the image starts with the options of deploy/compose.yaml', async () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    expect(COMPOSE.image).toBe(`rookery:${version}`);
    expect(COMPOSE.ports).toEqual(['127.0.0.1:8888:8888', '127.0.0.1:31182:31182']);
    expect(COMPOSE.volumes).toEqual(['rookery:/var/lib/rookery']);
    const options = COMPOSE.security_opt.flatMap(option => ['--security-opt', option]);
    expect(options).toEqual(UNCONFINED);
    const volume = `rookery-test-${process.pid}`;
    const id = await shared.docker('run', '--detach', ...options, '--volume', `${volume}:/var/lib/rookery`, image);
    try {
      await expect.poll(() => shared.docker('logs', id), { timeout: 60_000 }).toMatch(/^ready /m);
      const rookery = (...args: readonly string[]) => shared.docker('exec', id, 'rookery', ...args);
      const code = '/opt/rookery/examples/hello';
      await rookery('agent', 'create', 'hello', '--upload', '--code', code, '--handler', 'handler.handle');
      expect(await rookery('agent', 'invoke', 'hello', '{"name": "Ada"}')).toContain('Hello, Ada!');
    } finally {
      await shared.docker('rm', '--force', '--volumes', id);
      await shared.docker('volume', 'rm', volume);
    }
  });
});
