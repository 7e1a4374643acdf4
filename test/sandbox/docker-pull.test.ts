import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import type { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { DOCKER_START_MS, sharedDocker } from '../parts/docker-shared.ts';
import { ImageRegistry } from '../parts/image-registry.ts';
import { describeWith } from '../probe.ts';
import { isError } from '../suites/sandbox-driver.ts';
import { DockerFixture } from './docker-fixture.ts';

const WAIT_MS = 30_000;

describeWith(['docker'], 'a missing image', () => {
  let fixture: DockerFixture;
  let driver: DockerDriver;
  let registry: ImageRegistry;
  const log: Record<string, unknown>[] = [];

  beforeAll(async () => {
    const { host } = await sharedDocker();
    const write = (line: string) => log.push(JSON.parse(line) as Record<string, unknown>);
    fixture = new DockerFixture(host, 'none', { logger: createLogger({ level: 'info', format: 'json', write }) });
  }, DOCKER_START_MS);

  beforeEach(async () => {
    log.length = 0;
    registry = await ImageRegistry.start();
    driver = fixture.driver();
  });

  afterEach(async () => {
    await registry[Symbol.asyncDispose]();
  });

  afterAll(async () => {
    await fixture.dispose();
  });

  const start = (signal = AbortSignal.timeout(WAIT_MS), from = driver) =>
    from.start(fixture.spec({ rootfs: { type: 'image', imageUrl: registry.reference, user: '' } }), signal);
  const messages = () => log.map(({ message }) => message);

  test('a missing image is pulled once for all waiting creates, and the log has the pull', async () => {
    const starts = await Promise.allSettled(Array.from({ length: 5 }, () => start()));
    // The image was pulled and contains no Python.
    for (const each of starts) {
      expect(each.status === 'rejected' && each.reason).toSatisfy(
        isError('failed_precondition', /^invalid function: runtime python3\.11 is not available: image 127/),
      );
    }
    expect(registry.pulls).toBe(1);
    expect(messages()).toEqual(['pulling image', 'image pulled']);
    expect(log[0]).toMatchObject({ image: registry.reference });
  });

  test('a failed pull fails the create with the registry’s reason, and the next create retries', async () => {
    registry.answer = 'broken off';
    await expect(start()).rejects.toSatisfy(
      isError('failed_precondition', /^image 127\.\S+\/thing:1 is not here and cannot be pulled: ./),
    );
    expect(messages()).toContain('image pull failed');
    registry.answer = 'given';
    await expect(start()).rejects.toSatisfy(isError('failed_precondition', /^invalid function: /));
  });

  test('a registry that no setting names does not lead the daemon to another address', async () => {
    const secrets: string[] = [];
    const local = createServer((request, response) => {
      secrets.push(String(request.url));
      response.end('{"token":"x"}');
    });
    await new Promise<void>(resolve => local.listen(0, '127.0.0.1', resolve));
    try {
      registry.realm = `http://127.0.0.1:${(local.address() as AddressInfo).port}/latest/meta-data`;
      const name = registry.reference.split('/')[0];
      await expect(start()).rejects.toSatisfy(
        isError(
          'failed_precondition',
          new RegExp(`cannot be pulled: .*because the setting docker.registries does not name ${name}`),
        ),
      );
      expect(registry.asked).toContain('/v2/ ');
      expect(secrets).toEqual([]);
      // The driver sends credentials to a named registry.
      const named = fixture.driver({ registries: { named: [String(name)], onlyNamed: true } });
      await expect(start(undefined, named)).rejects.toSatisfy(isError('failed_precondition', /cannot be pulled/));
      expect(secrets).not.toEqual([]);
    } finally {
      local.closeAllConnections();
      local.close();
    }
  });

  test('an answer of an address that is no registry is not shown', async () => {
    const local = createServer((_request, response) =>
      response.writeHead(404).end('{"errors":[{"code":"X","message":"secret"}]}'),
    );
    await new Promise<void>(resolve => local.listen(0, '127.0.0.1', resolve));
    try {
      const imageUrl = `127.0.0.1:${(local.address() as AddressInfo).port}/latest/meta-data`;
      const spec = fixture.spec({ rootfs: { type: 'image', imageUrl, user: '' } });
      const error = await driver.start(spec, AbortSignal.timeout(WAIT_MS)).catch((reason: unknown) => reason);
      expect(error).toSatisfy(isError('failed_precondition', /cannot be pulled: (the registry|it failed)/));
      expect((error as Error).message).not.toContain('secret');
      // The log, which only the operator reads, contains the answer.
      expect(JSON.stringify(log)).toContain('secret');
    } finally {
      local.closeAllConnections();
      local.close();
    }
  });

  test.each([
    ['any', 200],
    ['any', 404],
    ['manifest', 200],
    ['manifest', 404],
    ['layer', 200],
    ['layer', 404],
    ['layer', 403],
  ] as const)(
    'an address to which a registry leads the daemon is not shown: %s, answered with %d',
    async (of, status) => {
      const secret = 'the-secret-of-a-local-server';
      const asked: string[] = [];
      const local = createServer((request, response) => {
        asked.push(`${request.method} ${request.url}`);
        response.writeHead(status, { 'Content-Type': 'application/json', 'X-Secret': secret }).end(secret);
      });
      await new Promise<void>(resolve => local.listen(0, '127.0.0.1', resolve));
      try {
        registry.redirect = { of, to: `http://127.0.0.1:${(local.address() as AddressInfo).port}/latest/meta-data` };
        const error = await start().catch((reason: unknown) => reason);
        expect(error).toSatisfy(isError('failed_precondition', /cannot be pulled/));
        expect((error as Error).message).not.toContain(secret);
        expect(asked).not.toEqual([]);
      } finally {
        local.closeAllConnections();
        local.close();
      }
    },
  );

  test('a registry is not contacted where only named registries are allowed', async () => {
    const strict = fixture.driver({ registries: { named: null, onlyNamed: true } });
    await expect(start(undefined, strict)).rejects.toSatisfy(
      isError(
        'failed_precondition',
        /cannot be pulled: the setting docker\.registries does not name 127\.0\.0\.1:\d+$/,
      ),
    );
    expect(registry.asked).toEqual([]);
  });

  test('a pull ends at the time limit of the setting', async () => {
    registry.answer = 'held back';
    const hasty = fixture.driver({ pullTimeoutMs: 300 });
    await expect(start(undefined, hasty)).rejects.toSatisfy(
      isError('failed_precondition', /cannot be pulled: it took longer than 0\.3 s$/),
    );
  });

  test('a create does not wait for a pull beyond its own time limit', async () => {
    registry.answer = 'held back';
    const hasty = fixture.driver({ pullTimeoutMs: 10_000 });
    const before = registry.pulls;
    const create = new AbortController();
    const starting = start(create.signal, hasty);
    starting.catch(() => undefined);
    await vi.waitFor(() => expect(registry.pulls).toBeGreaterThan(before), { timeout: 30_000 });
    create.abort();
    await expect(starting).rejects.toSatisfy(isError('deadline_exceeded', /is still being pulled$/));
    expect(await hasty.list()).toEqual([]);
  });
});
