import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

test('config show prints the source of each setting of this machine, and masks secrets', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'rookery-config-'));
  try {
    const file = join(dir, 'rookery.yaml');
    writeFileSync(
      file,
      'port: 1\nmetaPort: 2\ndependencies:\n  pythonIndex: https://me:hidden@pypi.example.com/simple\n',
    );
    const environment = { ROOKERY_META_PORT: '3', ROOKERY_S3_SECRET_ACCESS_KEY: 'hidden' };
    const args = ['config', 'show', '-c', file, '--port', '4'];
    const shown = JSON.parse((await cli([...args, '--json'], { environment })).out);
    const of = (name: string) => shown.find((each: { name: string }) => each.name === name);
    expect(of('port')).toMatchObject({ value: 4, source: '--port', is_default: false });
    expect(of('metaPort')).toMatchObject({ value: 3, source: 'environment variable ROOKERY_META_PORT' });
    expect(of('dependencies.pythonIndex')).toMatchObject({
      value: 'https://********@pypi.example.com/simple',
      source: 'rookery.yaml:4',
    });
    expect(of('s3.secretAccessKey')).toMatchObject({ value: '********', is_default: false });
    expect(of('host')).toMatchObject({ source: 'default', is_default: true });
    const table = await cli([...args, '--changed'], { environment });
    expect(table.out).toMatch(/^port +4 +--port$/m);
    expect(table.out).not.toMatch(/hidden|^host/m);
    expect(await cli(['config', 'show', '--set', 'nosuch=1'])).toMatchObject({ code: 78 });
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test('config show reads the settings from the service of --address', async () => {
  await using service = await StubService.start((_, response) =>
    json(response, 200, { settings: [{ name: 'port', value: 80, is_default: false, source: '--port', doc: '' }] }),
  );
  const ran = await cli(['config', 'show', '--address', service.address]);
  expect(ran).toMatchObject({ code: 0, out: expect.stringMatching(/^port +80 +--port$/m) });
  expect(service.last.url).toBe('/api/settings');
});

test('config show reads the settings from a service that answers on the configured port', async () => {
  await using service = await StubService.start(({ url }, response) => {
    if (url === '/api/settings')
      json(response, 200, { settings: [{ name: 'dataDir', value: '/elsewhere', is_default: false }] });
    else response.end('ok');
  });
  const environment = { ROOKERY_PORT: new URL(service.address).port };
  expect((await cli(['config', 'show'], { environment })).out).toMatch(/^dataDir +\/elsewhere /m);
  expect((await cli(['config', 'show', '--local'], { environment })).out).not.toContain('/elsewhere');
});
