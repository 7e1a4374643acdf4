import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ServiceError } from './error.ts';
import {
  checkHostPath,
  checkPathText,
  checkSources,
  completePolicy,
  ENGINE_STATE,
  type FindPath,
  type HostPathPolicy,
  resolvePolicy,
} from './host-path.ts';

const POLICY: HostPathPolicy = { closed: ['/srv/rookery/data', ...ENGINE_STATE], allow: null };
/**
 * Returns a FindPath that resolves the given symlinks by path. Every other path resolves to itself, and
 * exists.
 */
const findOf =
  (links: Record<string, string | null> = {}): FindPath =>
  async path => {
    const link = links[path];
    if (link === null) return null;
    return { resolved: link ?? path.replace(/\/+(\.?\/+)*/g, '/').replace(/(.)\/$/, '$1'), kind: 'directory' };
  };
const check = (source: string, links?: Record<string, string | null>) =>
  checkSources('', [{ source, target: '/x', readonly: false }], POLICY, findOf(links));

describe('forbidden sources', () => {
  test.each([
    '/',
    '//',
    '/.',
    '/etc',
    '/etc/',
    '//etc',
    '/./etc',
    '/etc/passwd',
    '/proc',
    '/proc/1/root',
    '/sys',
    '/sys/fs/cgroup',
    '/dev',
    '/dev/shm',
    '/boot',
    '/boot/grub',
    '/var/run/docker.sock',
    '/tmp/my-docker.sock-dir',
    '/home/../etc',
    '/home/ann/..',
    '/home/a..b',
  ])('the host path %s is refused', async source => {
    await expect(check(source)).rejects.toMatchObject({
      code: 'invalid_request',
      message: `unsafe mount source: ${source}`,
    });
    await expect(checkSources(source, [], POLICY, findOf())).rejects.toMatchObject({
      code: 'invalid_request',
      message: `unsafe workspace: ${source}`,
    });
  });

  test.each([
    ['the data directory', '/srv/rookery/data'],
    ['a directory below the data directory', '/srv/rookery/data/instances/1'],
    ['the parent of the data directory', '/srv/rookery'],
    ['a further parent of the data directory', '/srv'],
    ['the directory of the docker socket', '/run'],
  ])('the path of %s is refused', async (_, source) => {
    await expect(check(source)).rejects.toThrow(`unsafe mount source: ${source}`);
  });

  test('a missing path below the data directory is refused', async () => {
    const source = '/srv/rookery/data/nothing';
    await expect(check(source, { [source]: null })).rejects.toThrow(`unsafe mount source: ${source}`);
  });

  test.each(['/etc', '/proc/self', '/', '/srv/rookery/data', '/run', '/other/docker.sock'])(
    'a symlink to %s is refused',
    async target => {
      await expect(check('/home/ann/link', { '/home/ann/link': target })).rejects.toThrow(
        'unsafe mount source: /home/ann/link',
      );
    },
  );
});

test.each(['', 'relative', './here', 'C:\\code', ' /code', '/a\0b'])(
  'the mount source "%s" is refused because it is not an absolute path',
  async source => {
    await expect(check(source)).rejects.toMatchObject({
      code: 'invalid_request',
      message: `mount source must be an absolute path: ${source}`,
    });
  },
);

test('a relative workspace is refused, and an empty one counts as absent', async () => {
  await expect(checkSources('work', [], POLICY, findOf())).rejects.toThrow('workspace must be an absolute path: work');
  await expect(checkSources('', [], POLICY, findOf())).resolves.toBeUndefined();
});

test.each([
  '/home/ann/code',
  '/etcetera',
  '/devices',
  '/tmp/proc',
  '/srv/rookery/data2',
  '/runner',
  '/home/ann/.config',
])('the host path %s is allowed', async source => {
  await expect(check(source)).resolves.toBeUndefined();
});

test('a missing source fails with failed_precondition instead of invalid_request', async () => {
  await expect(check('/gone', { '/gone': null })).rejects.toMatchObject({
    code: 'failed_precondition',
    message: 'mount source does not exist: /gone',
  });
  await expect(checkSources('/gone', [], POLICY, findOf({ '/gone': null }))).rejects.toThrow(
    'workspace does not exist: /gone',
  );
});

test('an unsafe source is reported before a missing one, whatever their order', async () => {
  const mounts = ['/gone', '/link', '/etc'].map(source => ({ source, target: '/x', readonly: true }));
  const links = { '/gone': null, '/link': '/etc' };
  await expect(checkSources('', mounts, POLICY, findOf(links))).rejects.toThrow('unsafe mount source: /etc');
  await expect(checkSources('', mounts.slice(0, 2), POLICY, findOf(links))).rejects.toThrow(
    'unsafe mount source: /link',
  );
});

test('every spelling of a forbidden directory is refused', () => {
  const filler = fc.array(fc.constantFrom('', '.'), { maxLength: 4 });
  const tree = fc.constantFrom('etc', 'proc', 'sys', 'dev', 'boot');
  const below = fc.array(fc.stringMatching(/^[a-z.]{0,5}$/), { maxLength: 3 });
  fc.assert(
    fc.property(filler, tree, filler, below, (before, name, after, rest) => {
      const path = ['', ...before, name, ...after, ...rest].join('/');
      expect(() => checkPathText('workspace', path)).toThrow(`unsafe workspace: ${path}`);
    }),
  );
});

describe('paths that are always refused', () => {
  const everything: HostPathPolicy = { ...POLICY, allow: ['/'] };

  test.each([
    ...['/run/docker', '/run/docker/runtime', '/var/run/docker', '/run/containerd', '/run/podman', '/run/crio', '/run'],
    ...['/var/run', '/var', '/var/lib', '/var/lib/docker', '/var/lib/docker/volumes/x/_data', '/var/lib/containerd'],
    ...['/var/lib/containers/storage', '/var/lib/kubelet/pods', '/var/run//containerd/', '/run/./podman'],
    ...['/run/user/1000', '/run/user', '/run/user/1000/podman', '/run/dbus', '/run/systemd/private'],
    ...['/srv/.local/share/containers', '/srv/.local/share/docker/overlay2', '/srv/.docker/config.json'],
  ])('the state of a container engine is always refused: %s', async source => {
    for (const policy of [POLICY, everything]) {
      await expect(checkHostPath('workspace', source, policy, findOf())).rejects.toMatchObject({
        code: 'invalid_request',
        message: `unsafe workspace: ${source}`,
      });
    }
  });

  test.each(['/var/lib/myapp', '/srv', '/home/ann', '/root/x', '/tmp/x', '/run/myapp', '/var/lib/dockerless'])(
    'the host path %s does not count as a state directory of an engine',
    async source => {
      const policy = { closed: [...ENGINE_STATE], allow: null };
      await expect(checkHostPath('workspace', source, policy, findOf())).resolves.toMatchObject({ resolved: source });
    },
  );

  test('a link to a state directory of an engine or to its parent is refused', async () => {
    const links = { '/home/link': '/var/lib/docker', '/home/up': '/var/lib' };
    for (const source of Object.keys(links)) {
      await expect(checkHostPath('code path', source, everything, findOf(links))).rejects.toThrow(
        `unsafe code path: ${source}`,
      );
    }
  });
});

describe('mounts.allow', () => {
  const policy: HostPathPolicy = { ...POLICY, allow: ['/data/code', '/mnt/disk'] };
  const links: Record<string, string | null> = {
    '/data/code/out': '/home/ann',
    '/srv/in': '/mnt/disk/in',
    '/data/code/gone': null,
    '/home/gone': null,
    '/data/code/out/gone': null,
    '/data/code/secret/gone': null,
    '/data/code/secret': '/srv/rookery/data/packages',
  };
  const allowed = (path: string) => checkHostPath('mount source', path, policy, findOf(links));
  const message = (path: string) => `unsafe mount source: ${path} (mounts.allow does not name it)`;

  test.each(['/data/code', '/data/code/', '/data//code/x', '/mnt/disk/a/b', '/srv/in'])(
    'the path %s is allowed by mounts.allow',
    async path => {
      await expect(allowed(path)).resolves.toBeDefined();
    },
  );

  test.each(['/data', '/data/codex', '/data/code2/x', '/home/ann', '/data/code/out', '/mnt'])(
    'the path %s is refused because mounts.allow does not name it',
    async path => {
      await expect(allowed(path)).rejects.toMatchObject({ code: 'invalid_request', message: message(path) });
    },
  );

  test('a refusal names the setting and packages, in characters that a header allows', async () => {
    const refused = await allowed('/home/ann').catch((error: ServiceError) => error);
    const advice = (refused as ServiceError).advice ?? '';
    for (const way of ['the setting mounts.allow', '--upload', 'code://']) expect(advice).toContain(way);
    expect(advice).toMatch(/^[ -~]+$/);
  });

  test('a refusal says whether a path exists only if the path is allowed', async () => {
    await expect(allowed('/data/code/gone')).rejects.toThrow('mount source does not exist: /data/code/gone');
    for (const path of ['/home/gone', '/data/code/out/gone'])
      await expect(allowed(path)).rejects.toThrow(message(path));
    await expect(allowed('/data/code/secret/gone')).rejects.toMatchObject({
      code: 'invalid_request',
      message: 'unsafe mount source: /data/code/secret/gone',
    });
  });

  test('no path is opened when mounts.allow is empty', async () => {
    const blind: FindPath = async path => expect.unreachable(path);
    const none = { ...POLICY, allow: [] };
    await expect(checkHostPath('workspace', '/home/ann', none, blind)).rejects.toThrow(
      'unsafe workspace: /home/ann (mounts.allow does not name it)',
    );
    await expect(checkHostPath('workspace', '/etc', none, blind)).rejects.toThrow(/^unsafe workspace: \/etc$/);
    await expect(checkHostPath('workspace', '/srv', none, blind)).rejects.toThrow(/^unsafe workspace: \/srv$/);
  });
});

describe('an opened path', () => {
  const opening = (resolved: string, kind: 'directory' | 'other', closed: string[]): FindPath => {
    return async path => ({ resolved, kind, close: async () => void closed.push(path) });
  };

  test('an opened path is closed when it is refused, and stays open otherwise', async () => {
    const closed: string[] = [];
    await expect(checkHostPath('workspace', '/a', POLICY, opening('/etc', 'directory', closed))).rejects.toThrow();
    await expect(checkHostPath('workspace', '/b', POLICY, opening('/b', 'other', closed))).rejects.toThrow(
      'unsafe workspace: /b (it is neither a file nor a directory)',
    );
    expect(closed).toEqual(['/a', '/b']);
    await checkHostPath('workspace', '/c', POLICY, opening('/c', 'directory', closed));
    expect(closed).toHaveLength(2);
  });
});

test('a path of more than 4096 characters is refused without a lookup', () => {
  expect(() => checkPathText('workspace', `/${'x'.repeat(4096)}`)).toThrow(
    'workspace must have at most 4096 characters: /xxx',
  );
});

describe('the policy of a host', () => {
  test('symlinks above its paths are followed, also when the paths do not exist', async () => {
    const links: Record<string, string | null> = {
      '/var/run/docker.sock': null,
      '/var/run': '/run',
      '/data/a/b': null,
      '/data/a': null,
      '/data': '/mnt/disk',
    };
    const policy = await resolvePolicy({ closed: ['/data/a/b/', '/srv/secret'], allow: ['/data/a/'] }, findOf(links));
    expect(policy.closed).toEqual(
      expect.arrayContaining(['/data/a/b', '/mnt/disk/a/b', '/srv/secret', '/run/docker.sock']),
    );
    expect(policy.allow).toEqual(['/mnt/disk/a']);
  });
});

test('the policy for the native program has the fixed lists and those of the service', () => {
  expect(completePolicy({ closed: ['/data'], allow: ['/code'] })).toEqual({
    closed: ['/etc', '/proc', '/sys', '/dev', '/boot', '/data'],
    closedNames: ['/.docker', '/.local/share/docker', '/.local/share/containers', '/.local/share/containerd'],
    closedTexts: ['docker.sock'],
    allow: ['/code'],
  });
});
