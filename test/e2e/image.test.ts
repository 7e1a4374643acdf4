import { afterAll, beforeAll, expect, test } from 'vitest';
import { DOCKER_START_MS, type SharedDocker, sharedDocker } from '../parts/docker-shared.ts';
import { IMAGE_MAKE_MS, productImage } from '../parts/kubernetes-image.ts';
import { describeWith } from '../probe.ts';

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
  ])('serves agents in a container, $container, as docs/install.md says', async ({ options, isIsolated }) => {
    const id = await shared.docker('run', '--detach', ...options, image, 'rookery', 'serve');
    containers.push(id);
    const rookery = (...args: readonly string[]) => shared.docker('exec', id, 'rookery', ...args);
    await expect.poll(() => shared.docker('logs', id), { timeout: 60_000 }).toMatch(/^ready /m);
    const code = '/opt/rookery/examples/hello';
    await rookery('agent', 'create', 'hello', '--code', code, '--code-path', code, '--handler', 'handler.handle');
    expect(await rookery('agent', 'invoke', 'hello', '{"name": "Ada"}')).toBe('{"message":"Hello, Ada!","calls":1}');
    const init = await rookery('agent', 'exec', 'hello', '--', 'cat', '/proc/1/cmdline');
    // Without processes of its own a sandbox sees those of the container.
    expect(init.includes('serve')).toBe(!isIsolated);
    await rookery('agent', 'delete', 'hello');
    await shared.docker('stop', '--time', '60', id);
    expect(await shared.docker('logs', id)).toContain('stopped: no agent is left');
  });
});
