import { expect, test } from 'vitest';
import { DockerDaemon } from '../parts/docker.ts';
import { describeWith } from '../probe.ts';
import { DockerBed } from './docker-bed.ts';

/** Timeout for 100 agents, which take a minute on an idle machine. */
const TIMEOUT_MS = 480_000;
const AGENTS = 100;
/** Number of parallel creates that the daemon completes within the time limit of a create. */
const AT_ONCE = 8;

async function createMany(under: DockerBed, count: number): Promise<readonly string[]> {
  const names = Array.from({ length: count }, (_, index) => `d${index}`);
  const ids: string[] = [];
  const work = async () => {
    for (let name = names.shift(); name !== undefined; name = names.shift())
      ids.push(await under.create(name, 'code.count'));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return ids;
}

const invokeAll = async ({ bed }: DockerBed, ids: readonly string[]) =>
  (await Promise.all(ids.map(id => bed.invoke(id)))).map(({ body }) => body.data);

/**
 * Expects that no network remains. A daemon under load sometimes miscounts the containers of a network
 * (moby/moby#42119). Such an empty network can be removed only after a restart of the daemon.
 */
async function expectNoNetwork(daemon: DockerDaemon): Promise<void> {
  const left = await daemon.docker('network', 'ls', '--quiet', '--filter', 'label=rookery.installation');
  if (left === '') return;
  expect(await daemon.docker('network', 'inspect', '--format', '{{len .Containers}}', left)).toBe('0');
  await expect(daemon.docker('network', 'rm', left)).rejects.toThrow('has active endpoints');
  await daemon.halt();
  await daemon.resume();
  await daemon.docker('network', 'rm', left);
}

// Each test has its own daemon, since it restarts the daemon or counts all of its objects.
describeWith(['docker'], 'agents in containers', () => {
  test(`${AGENTS} agents in containers outlive kill -9 of the server with the state of their handlers, and none is leaked`, {
    timeout: TIMEOUT_MS,
  }, async () => {
    await using daemon = await DockerDaemon.start({ images: ['python'] });
    {
      await using under = await DockerBed.start(daemon);
      const ids = await createMany(under, AGENTS);
      await invokeAll(under, ids);
      const before = await under.containers();
      expect(before.length).toBe(AGENTS);
      await under.bed.killAndRestart();
      expect(await invokeAll(under, ids)).toEqual(ids.map(() => 2));
      expect([...(await under.containers())].sort()).toEqual([...before].sort());
    }
    expect(await daemon.docker('ps', '--all', '--quiet')).toBe('');
    await expectNoNetwork(daemon);
  });

  test('containers outlive a restart of the daemon with live restore', { timeout: TIMEOUT_MS }, async () => {
    await using daemon = await DockerDaemon.start({ images: ['python'], liveRestore: true });
    await using under = await DockerBed.start(daemon);
    const ids = await createMany(under, 10);
    await invokeAll(under, ids);
    await daemon.halt();
    // Calls do not need the daemon.
    expect(await invokeAll(under, ids)).toEqual(ids.map(() => 2));
    await daemon.resume();
    expect(await invokeAll(under, ids)).toEqual(ids.map(() => 3));
    // The service still notices the end of a container.
    const [first = ''] = ids;
    await daemon.docker('kill', (await under.record(first)).sandbox_id);
    await under.isFailed(first, /SIGKILL/);
    expect((await under.containers()).length).toBe(ids.length);
  });

  test('agents are FAILED with the reason and can be deleted after a restart of the daemon without live restore', {
    timeout: TIMEOUT_MS,
  }, async () => {
    await using daemon = await DockerDaemon.start({ images: ['python'] });
    await using under = await DockerBed.start(daemon);
    const ids = await createMany(under, 10);
    await invokeAll(under, ids);
    await daemon.halt();
    await daemon.resume();
    for (const id of ids) await under.isFailed(id, /exited|connection to the instance was lost/);
    const restarted = await under.bed.ask('POST', `/api/agent/${ids[0]}/restart`);
    expect(restarted.status).toBe(200);
    expect((await under.bed.invoke(String(ids[0]))).body.data).toBe(1);
    for (const id of ids) expect((await under.bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    expect(await daemon.docker('ps', '--all', '--quiet')).toBe('');
  });
});
