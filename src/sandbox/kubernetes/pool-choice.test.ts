import type { V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import { describe, expect, test } from 'vitest';
import type { PoolSpec } from '../../core/pool.ts';
import { readPool } from '../../core/pool.ts';
import { refusedVolumes } from './pod-volumes.ts';
import { choosePools, type Needs } from './pool-choice.ts';

const IMAGE = 'rookery:1';
const RESOURCES = { requests: { cpu: '500m', memory: '512Mi' }, limits: { cpu: '500m', memory: '512Mi' } };
const needs = (changes: Partial<Needs> = {}): Needs => ({
  ...{ cpuMillis: 500, memoryMb: 512, imageUrl: '', mounts: [] },
  ...changes,
});

function pool(id: string, fields: Record<string, unknown> = {}): PoolSpec {
  const read = readPool({ id, size: 1, resources: RESOURCES, ...fields });
  if (!read.ok) throw new Error(read.problems.join());
  return read.value;
}

const resources = (cpu: number, memory: number) => {
  const amounts = { cpu: `${cpu}m`, memory: `${memory}Mi` };
  return { resources: { requests: amounts, limits: amounts } };
};

describe('the choice of a pool for an instance', () => {
  const chosen = (asked: Partial<Needs>, ...pools: PoolSpec[]) => {
    const { pools: found, reason } = choosePools(needs(asked), pools, IMAGE);
    return found.length > 0 ? found.map(({ id }) => id) : reason;
  };
  const big = pool('big', resources(2000, 2048));
  const small = pool('small', resources(500, 512));
  const other = pool('other', { group: 'g2', labels: { tier: 'gold', zone: 'a' } });

  test('a create without labels gets a fitting pool of the group default, the smallest first', () => {
    expect(chosen({}, big, other, small)).toEqual(['small', 'big']);
    expect(chosen({ memoryMb: 1024 }, big, other, small)).toEqual(['big']);
  });

  test('a create with a pool id gets that pool or none', () => {
    const wish = (id: string) => ({ pool: { id, labels: ['tier'] } });
    expect(chosen(wish('other'), big, other, small)).toEqual(['other']);
    expect(chosen(wish('gone'), big, other)).toBe('pool gone was not used: there is no such pool');
    expect(chosen({ ...wish('small'), cpuMillis: 501 }, big, small)).toBe(
      'pool small was not used: its pods have 500 millicores of CPU, and 501 were asked for',
    );
  });

  test.each([['tier'], ['tier=gold'], ['gold'], ['zone=a']])(
    'the label %s finds a pool of any group first, then any that fits',
    label => {
      expect(chosen({ pool: { id: '', labels: [label] } }, big, small, other)).toEqual(['other', 'small', 'big']);
    },
  );

  test('labels count in the order in which they are given', () => {
    const silver = pool('silver', { labels: { tier: 'silver' } });
    const wish = { pool: { id: '', labels: ['tier=silver', 'gold'] } };
    expect(chosen(wish, other, small, silver)).toEqual(['silver', 'other', 'small']);
  });

  test.each([['tier=silver'], ['Tier'], ['tier='], ['=gold']])(
    'the label %s does not match a pool with tier=gold',
    label => {
      expect(chosen({ pool: { id: '', labels: [label] } }, small, other)).toEqual(['other', 'small']);
      expect(chosen({ pool: { id: '', labels: [label, 'zone'] } }, small, other)).toEqual(['other', 'small']);
    },
  );

  test('a create with its own image gets only a pool with that image', () => {
    const custom = pool('custom', { image: 'mine:1' });
    expect(chosen({ imageUrl: 'mine:1' }, small, custom)).toEqual(['custom']);
    expect(chosen({ imageUrl: IMAGE }, small, custom)).toEqual(['small']);
    expect(chosen({ imageUrl: 'yours:1' }, small)).toMatch(/run the image rookery:1, and yours:1 was asked for/);
  });

  test('a create with mounts gets only a pool with exactly these mounts', () => {
    const mounted = pool('mounted', {
      volumes: JSON.stringify([{ name: 'd', hostPath: { path: '/data' } }]),
      volume_mounts: JSON.stringify([{ name: 'd', mountPath: '/mnt', readOnly: true }]),
    });
    const mount = { source: '/data', target: '/mnt', readonly: true };
    expect(chosen({ mounts: [mount] }, small, mounted)).toEqual(['mounted']);
    for (const odd of [
      { ...mount, readonly: false },
      { ...mount, target: '/m' },
      { ...mount, source: '/data/x' },
    ]) {
      expect(chosen({ mounts: [odd] }, mounted)).toMatch(/do not have the mount/);
    }
  });

  test('a pool that never has pods is not chosen', () => {
    expect(chosen({}, pool('empty', { size: 0 }))).toBe('there is no pool in the group default that has pods');
    expect(chosen({}, pool('grows', { size: 0, max_size: 2 }))).toEqual(['grows']);
  });
});

describe('mounts that pods of pools may have', () => {
  const refused = (volumes: unknown[], mounts: unknown[] = [], allow: string[] | null = null) =>
    refusedVolumes(volumes as V1Volume[], mounts as V1VolumeMount[], { closed: ['/var/lib/kubelet'], allow });
  const host = (path: string) => [{ name: 'v', hostPath: { path } }];

  test.each(['/', '/etc', '/proc/1', '/var/lib/kubelet/pods', '/var/lib', '/a/../etc'])(
    'the directory %s of a node is refused as a mount of a pool',
    path => {
      expect(refused(host(path))).toContain(`unsafe mount source: ${path}`);
    },
  );

  test('mounts.allow also decides about directories of nodes', () => {
    expect(refused(host('/srv/data'), [], ['/srv'])).toBeNull();
    expect(refused(host('/srv/data'), [], null)).toBeNull();
    expect(refused(host('/srv2/data'), [], ['/srv'])).toBe(
      'unsafe mount source: /srv2/data (mounts.allow does not name it)',
    );
    expect(refused(host('/srv/data'), [], [])).toContain('mounts.allow does not name it');
  });

  test.each([
    ['a secret', { name: 'v', secret: { secretName: 'rookery-12345678' } }],
    ['a token', { name: 'v', projected: { sources: [{ serviceAccountToken: { path: 't' } }] } }],
    ['settings', { name: 'v', configMap: { name: 'c' } }],
  ])('%s of the namespace is not given to code', (_name, volume) => {
    expect(refused([volume])).toMatch(/is not given to sandboxes/);
  });

  test('volumes of the platform cannot be mounted, redefined or covered by a pool', () => {
    expect(refused([], [{ name: 'rookery-secret', mountPath: '/x' }])).toMatch(/there is no volume rookery-secret/);
    expect(refused([{ name: 'rookery-run', emptyDir: {} }])).toMatch(/belongs to the platform/);
    expect(refused([{ name: 'v', emptyDir: {} }], [{ name: 'v', mountPath: '/rookery/bin' }])).toMatch(
      /cannot be mounted/,
    );
    expect(refused([{ name: 'v', emptyDir: {} }], [{ name: 'v', mountPath: '/rookery-data' }])).toBeNull();
  });
});
