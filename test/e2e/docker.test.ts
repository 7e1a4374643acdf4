import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { IMAGES } from '../parts/docker-images.ts';
import { DOCKER_START_MS, sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { checkDurableFiles } from '../suites/durable-files.ts';
import { DockerBed } from './docker-bed.ts';

describeWith(['docker'], 'agents with sandbox_type docker', () => {
  let under: DockerBed;
  beforeAll(async () => {
    under = await DockerBed.start(await sharedDocker());
  }, DOCKER_START_MS);
  afterAll(() => under?.[Symbol.asyncDispose]());

  test('agents in docker run calls, commands, logs and file lists, and leave no container after the delete', async () => {
    const { bed, daemon } = under;
    const id = await under.create('first', 'code.count');
    expect((await bed.invoke(id)).body.data).toBe(1);
    expect((await bed.invoke(id)).body.data).toBe(2);
    const { sandbox_id: container, rootfs } = await under.record(id);
    expect(rootfs.type).toBe('image');
    const command = ['sh', '-c', 'echo $ROOKERY_INSTANCE_ID'];
    const executed = await bed.ask('POST', `/api/agent/${id}/exec`, { command });
    expect(executed).toMatchObject({ status: 200, body: { returncode: 0, stdout: `${id}\n` } });
    const logs = await fetch(`${bed.server.frontendUrl}/api/agent/${id}/logs`);
    expect(await logs.text()).toBe('call 1\ncall 2\n');
    const listed = await bed.ask('GET', `/api/agent/${id}/files/list?path=/code`);
    expect(listed.status).toBe(200);
    expect(JSON.stringify(listed.body)).toContain('/code/code.py');
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    expect(await daemon.docker('ps', '--all', '--quiet', '--filter', `id=${container}`)).toBe('');
  });

  test('agents in docker are FAILED with the reason when they exceed their memory, are killed or exit', async () => {
    const { bed, daemon } = under;
    const [eater, victim, ender] = await Promise.all([
      under.create('eater', 'code.eat'),
      under.create('victim', 'code.count'),
      under.create('ender', 'code.end'),
    ]);
    expect(await bed.invoke(eater)).toMatchObject({
      status: 500,
      body: { message: expect.stringContaining('invoke failed: instance exited: ') },
    });
    await under.isFailed(eater, /out of memory/);
    await daemon.docker('kill', (await under.record(victim)).sandbox_id);
    await under.isFailed(victim, /SIGKILL/);
    expect((await bed.invoke(ender, 7)).body.message).toContain('exit code 7');
    await under.isFailed(ender, /exit code 7/);
    for (const id of [eater, victim, ender]) expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
  });

  test('a durable agent in docker sleeps without a container, and its next call starts it with its state', async () => {
    const { bed, daemon } = under;
    const id = await bed.create('durable', 'code.remember', under.spec({}), { durable: true });
    expect((await bed.invoke(id)).body.data).toBe(1);
    const { sandbox_id: container } = await under.record(id);
    expect(await bed.ask('POST', `/api/agent/${id}/sleep`)).toMatchObject({ status: 200 });
    expect(await under.record(id)).toMatchObject({ status: 'SLEEPING', sandbox_id: '' });
    expect(await daemon.docker('ps', '--all', '--quiet', '--filter', `id=${container}`)).toBe('');
    expect((await bed.invoke(id)).body.data).toBe(2);
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
  });

  test('the directory of a durable agent in docker survives its containers', async () => {
    await checkDurableFiles(under.bed, under.spec({}));
  });

  test("agents with runtime custom image run the image's command in its directory, also after a server restart", async () => {
    const { bed, daemon } = under;
    const image = `rookery-test/e2e-${process.pid}`;
    const directory = mkdtempSync(join(tmpdir(), 'rookery-custom-'));
    cpSync(join(import.meta.dirname, '../fixtures/http/server.py'), join(directory, 'server.py'));
    const lines = [`FROM ${IMAGES.python}`, 'WORKDIR /app', 'COPY server.py .', 'CMD ["python3", "server.py"]', ''];
    writeFileSync(join(directory, 'Dockerfile'), lines.join('\n'));
    await daemon.docker('build', '--quiet', '--tag', image, directory);
    rmSync(directory, { recursive: true });
    const spec = { runtime: 'custom image', handler: 'count', codePath: '/code', rootfs: { imageurl: image } };
    const id = await bed.create('custom', 'count', under.spec(spec), { mounts: [] });
    expect(await bed.invoke(id)).toMatchObject({ status: 200, body: { data: 1 } });
    await bed.killAndRestart();
    expect(await bed.invoke(id)).toMatchObject({ status: 200, body: { data: 2 } });
    // The program listens on loopback in the container.
    const direct = await fetch(`${bed.server.frontendUrl}/serverless/v1/http/healthz?instance=${id}&port=8000`);
    expect(direct.status).toBe(200);
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    await daemon.docker('rmi', image);
  });

  test('agents in docker are refused when their image, its Python or its user is missing', async () => {
    const { bed } = under;
    const refused = async (spec: Readonly<Record<string, unknown>>) => {
      const answer = await bed.ask('POST', '/api/agent', bed.createBody('refused', 'code.count', under.spec(spec)));
      expect(answer.status).toBe(500);
      return answer.body.message;
    };
    const absent = await refused({ rootfs: { imageurl: 'localhost:1/nothing:here' } });
    expect(absent).toMatch(/^failed to create agent: .*localhost:1\/nothing:here/);
    const bare = await refused({ rootfs: { imageurl: IMAGES.plain } });
    expect(bare).toMatch(
      /^failed to create agent: invalid function: runtime python3.11 is not available: .*rookery-test\/plain/,
    );
    const stranger = await refused({ rootfs: { imageurl: IMAGES.python, user: 'nobody-here' } });
    expect(stranger).toContain('user nobody-here does not exist in');
    const none = await bed.ask(
      'POST',
      '/api/agent',
      bed.createBody('refused', 'code.count', under.spec({ rootfs: {} })),
    );
    expect(none).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('runtime_spec.rootfs.imageurl') },
    });
    expect(await under.containers()).toEqual([]);
  });
});

describeWith(['docker'], 'agents without a docker daemon', () => {
  test('a create fails with the reason why docker is not available', async () => {
    const daemon = { host: 'unix:///nowhere/docker.sock', docker: () => Promise.resolve('') };
    await using under = await DockerBed.start(daemon);
    const { bed } = under;
    const answer = await bed.ask('POST', '/api/agent', bed.createBody('none', 'code.count', under.spec()));
    expect(answer.status).toBe(500);
    expect(answer.body.message).toMatch(/^failed to create agent: docker is not available: .*\/nowhere\/docker.sock/);
  });
});
