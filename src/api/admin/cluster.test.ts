import { expect, test } from 'vitest';
import { testFrontend } from '../../../test/http/frontend.ts';
import { singleReplica } from '../../cluster/membership.ts';
import { clusterStatus } from '../../cluster/replicas.ts';

const SELF = { id: 'node-1', advertise: '', roles: ['frontend', 'meta', 'worker'], version: '1.2.3' };
const status = () => clusterStatus(singleReplica(SELF), 'sqlite');

test('GET /api/cluster lists one node that owns everything when the database is embedded', async () => {
  await using frontend = testFrontend({ cluster: { status, visibleTo: null } });
  const { status: code, body } = await frontend.send({ method: 'GET', url: '/api/cluster' });
  expect(code).toBe(200);
  expect(body).toEqual({
    node_id: 'node-1',
    storage: 'sqlite',
    is_member: true,
    heartbeat_age_ms: 0,
    feed_behind_ms: 0,
    shards: { total: 64, owned: 64 },
    jobs: 'node-1',
    sweeper: 'node-1',
    nodes: [
      {
        id: 'node-1',
        epoch: 1,
        address: '',
        roles: ['frontend', 'meta', 'worker'],
        version: '1.2.3',
        joined_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
        shards: 64,
        leases: ['jobs', 'sweeper'],
      },
    ],
  });
});

test('GET /api/cluster answers 403 to a tenant that may not see cluster-wide metrics', async () => {
  await using frontend = testFrontend({ cluster: { status, visibleTo: ['monitoring'] } });
  const ask = (tenant: string) =>
    frontend.send({ method: 'GET', url: '/api/cluster', headers: { 'x-tenant-id': tenant } });
  expect((await ask('acme')).status).toBe(403);
  expect((await ask('monitoring')).status).toBe(200);
});
