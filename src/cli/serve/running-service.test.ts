import { expect, test } from 'vitest';
import { json, StubService } from '../../../test/parts/cli.ts';
import { type Config, defaultDataDir } from '../../config/config.ts';
import type { Io } from '../shared/io.ts';
import { findRunningService, withDataDirOf } from './running-service.ts';

const io = { environment: {}, signal: new AbortController().signal } as Io;
const configOf = (address: string, dataDir: string) =>
  ({ host: '127.0.0.1', port: Number(new URL(address).port), dataDir }) as Config;
const defaultDir = defaultDataDir({ environment: {}, isRoot: process.getuid?.() === 0 });

test("withDataDirOf uses the running service's data directory unless another one was chosen", async () => {
  await using service = await StubService.start((_, response) =>
    json(response, 200, { settings: [{ name: 'dataDir', value: '/elsewhere', is_default: false }] }),
  );
  const config = configOf(service.address, defaultDir);
  const running = await findRunningService(io, config);
  expect(running?.address).toBe(service.address);
  expect(withDataDirOf(running, config, io).dataDir).toBe('/elsewhere');
  expect(withDataDirOf(running, { ...config, dataDir: '/chosen' }, io).dataDir).toBe('/chosen');
});

test('withDataDirOf keeps the data directory when the service hides its settings', async () => {
  await using service = await StubService.start(({ url }, response) =>
    url === '/api/settings' ? json(response, 401, { message: 'no token' }) : json(response, 200, {}),
  );
  const config = configOf(service.address, defaultDir);
  const running = await findRunningService(io, config);
  expect(running).toEqual({ address: service.address, settings: null });
  expect(withDataDirOf(running, config, io)).toBe(config);
});

test('findRunningService returns null when no service answers', async () => {
  expect(await findRunningService(io, configOf('http://127.0.0.1:1', defaultDir))).toBeNull();
});
