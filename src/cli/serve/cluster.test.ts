import { expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const NODE = { epoch: 3, version: '1.2.3', joined_at: new Date(Date.now() - 90_000).toISOString() };
const STATUS = {
  node_id: 'a',
  storage: 'postgres',
  is_member: true,
  heartbeat_age_ms: 500,
  feed_behind_ms: 12,
  shards: { total: 64, owned: 60 },
  jobs: 'b',
  sweeper: null,
  nodes: [
    { ...NODE, id: 'a', address: '10.0.0.1:7777', roles: ['frontend', 'worker'], shards: 32, leases: [] },
    { ...NODE, id: 'b', address: '', roles: [], shards: 28, leases: ['jobs'] },
  ],
};
const serving = (status: object) => StubService.start((_, response) => json(response, 200, status));

test('cluster status prints the nodes, their leases, and the lag of the answering node', async () => {
  await using service = await serving(STATUS);
  const { out, code } = await cli(['cluster', 'status', '--address', service.address]);
  expect(code).toBe(0);
  expect(service.last).toMatchObject({ method: 'GET', url: '/api/cluster' });
  expect(out).toContain('60 of 64 are owned');
  expect(out).toContain('12 ms behind');
  expect(out).toMatch(/a +10\.0\.0\.1:7777 +frontend,worker +1\.2\.3 +32 +- +9\ds/);
  expect(out).toMatch(/b +- +leaving +1\.2\.3 +28 +jobs +9\ds/);
});

test('cluster status reports a node without membership, and a single node with embedded storage', async () => {
  await using lost = await serving({ ...STATUS, is_member: false, heartbeat_age_ms: 9_800, jobs: null });
  const { out } = await cli(['cluster', 'status', '--address', lost.address]);
  expect(out).toContain('a, which has lost its place in the cluster: the rest is what it knew 10 s ago');
  expect(out).toContain('no node dispatches them at the moment');
  await using single = await serving({ ...STATUS, storage: 'sqlite' });
  expect((await cli(['cluster', 'status', '--address', single.address])).out).toContain(
    'One node with embedded storage.',
  );
});

test('cluster status --json prints the response of the service', async () => {
  await using service = await serving(STATUS);
  const { out } = await cli(['cluster', 'status', '--json', '--address', service.address]);
  expect(JSON.parse(out)).toEqual(STATUS);
});
