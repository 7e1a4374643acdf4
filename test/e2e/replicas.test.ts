import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { nodesSeenBy, ServedReplicas } from '../parts/served-replicas.ts';
import { describeWith } from '../probe.ts';

const TIMEOUT_MS = 180_000;
const WAIT = { timeout: 60_000, interval: 100 };

const CODE = 'def handle(event, context):\n    return event\n';

async function createAgent({ frontendUrl }: Served, { handler, replace }: { handler: string; replace: boolean }) {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-replaced-'));
  try {
    writeFileSync(join(directory, 'handler.py'), CODE);
    const runtime_spec = { runtime: 'python3.11', handler, codePath: '/code', rootfs: { imageurl: 'host' } };
    const mounts = [{ source: directory, target: '/code', readonly: true }];
    const body = JSON.stringify({ namespace: 'default', name: 'a', replace, runtime_spec, mounts });
    const answer = await fetch(`${frontendUrl}/api/agent`, { method: 'POST', body });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Returns the ids of all agents, incomplete ones included. */
async function agentsOf({ frontendUrl }: Served): Promise<readonly string[]> {
  const { instances } = (await (await fetch(`${frontendUrl}/api/agent`)).json()) as {
    instances: readonly { instance_id: string }[];
  };
  return instances.map(({ instance_id }) => instance_id);
}

describeWith(['postgres'], 'replicas as processes', () => {
  let postgres: TestPostgres;
  beforeAll(async () => {
    postgres = await startPostgres();
  });
  afterAll(() => postgres?.close());

  test.each([
    ['with cluster.listen', 1],
    ['which has none', 0],
  ])(
    'a data directory copied from a living replica %s is refused with a message, and that replica continues',
    { timeout: TIMEOUT_MS },
    async (_, count) => {
      const url = await postgres.database();
      await using replicas = await ServedReplicas.start(url, count);
      const alone = count === 0 ? await Served.start({ env: { ROOKERY_STORAGE_URL: url } }) : null;
      const replica = alone ?? (replicas.all[0] as Served);
      const before = await nodesSeenBy(replica);
      const copy = mkdtempSync(join(tmpdir(), 'rookery-copy-'));
      try {
        cpSync(join(replica.dataDir, 'node-id'), join(copy, 'node-id'));
        const started = Served.start({ dataDir: copy, env: { ROOKERY_STORAGE_URL: url } });
        await expect(started).rejects.toThrow(/another process lives as this replica.*not a copy/);
        expect(await nodesSeenBy(replica)).toEqual({ ...before, isMember: true });
      } finally {
        rmSync(copy, { recursive: true, force: true });
        await alone?.remove();
      }
    },
  );

  test('a killed replica starts again with the same identity', { timeout: TIMEOUT_MS }, async () => {
    await using replicas = await ServedReplicas.start(await postgres.database(), 2);
    const [killed, other] = replicas.all as [Served, Served];
    const { id } = await nodesSeenBy(killed);
    await killed.end('SIGKILL');
    const again = await killed.next();
    expect(await nodesSeenBy(again)).toMatchObject({ id, isMember: true });
    expect((await nodesSeenBy(other)).isMember).toBe(true);
    await again.end();
  });

  test('a call forwarded to a frozen replica fails when that replica is no longer a member', {
    timeout: TIMEOUT_MS,
  }, async () => {
    await using replicas = await ServedReplicas.start(await postgres.database(), 2);
    const [frozen, other] = replicas.all as [Served, Served];
    const { body } = await createAgent(frozen, { handler: 'handler.handle', replace: false });
    const call = () =>
      fetch(`${other.frontendUrl}/api/agent/${String(body.instance_id)}/invoke`, { method: 'POST', body: '{}' });
    // The call leaves an open connection between the replicas.
    expect((await call()).status).toBe(200);
    expect((await nodesSeenBy(other)).count).toBe(2);
    frozen.process.kill('SIGSTOP');
    try {
      const answer = await call();
      expect([answer.status, await answer.text()]).toEqual([503, expect.stringContaining('not known')]);
      // The end of its membership ends the call, long before the time limit of the call.
      expect((await nodesSeenBy(other)).count).toBe(1);
    } finally {
      frozen.process.kill('SIGCONT');
    }
    await vi.waitFor(async () => expect((await call()).status).toBe(200), WAIT);
  });

  test('an agent of another replica is replaced, and its sandbox ends there', { timeout: TIMEOUT_MS }, async () => {
    await using replicas = await ServedReplicas.start(await postgres.database(), 2);
    const [first, second] = replicas.all as [Served, Served];
    const old = await createAgent(first, { handler: 'handler.handle', replace: true });
    const failed = await createAgent(second, { handler: 'handler.nothing', replace: true });
    expect(failed).toMatchObject({ status: 500 });
    expect(String(failed.body.message)).toMatch(/^failed to create agent: the code of agent default\/a could not be /);
    expect(await agentsOf(first)).toEqual([old.body.instance_id]);
    const both = await Promise.all([
      createAgent(first, { handler: 'handler.handle', replace: true }),
      createAgent(second, { handler: 'handler.handle', replace: true }),
    ]);
    expect(both.map(({ status }) => status)).toEqual([200, 200]);
    await vi.waitFor(async () => {
      const left = await agentsOf(first);
      expect(left).toHaveLength(1);
      expect(both.map(({ body }) => body.instance_id)).toContain(left[0]);
      expect(await agentsOf(second)).toEqual(left);
    }, WAIT);
  });
});
