import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Answer, cli, StubService } from '../../../test/parts/cli.ts';
import { OWN_SCHEMA } from '../../storage/applied-schema.ts';
import { openDatabase } from '../../storage/database.ts';
import { isNewer } from '../function/newest-version.ts';

let dir: string;
let dataDir: string;
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'rookery-upgrade-'));
  dataDir = mkdtempSync(join(dir, 'data-'));
  const database = await openDatabase(join(dataDir, 'rookery.db'));
  await database.destroy();
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** Returns a registry that has one version of the package. */
function registryOf(version: string, schema?: string): Answer {
  const manifest = { name: 'rookery', version, ...(schema === undefined ? {} : { rookery: { schema } }) };
  return (_, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(
      JSON.stringify({ name: 'rookery', 'dist-tags': { latest: version }, versions: { [version]: manifest } }),
    );
  };
}

async function check(answer: Answer, ...args: readonly string[]) {
  await using registry = await StubService.start(answer);
  const ran = await upgrade('--registry', registry.address, ...args);
  expect(registry.seen.map(({ method }) => method)).toContain('GET');
  return ran;
}

const upgrade = (...args: readonly string[]) =>
  cli(['upgrade', '--check', '--data-dir', dataDir, ...args], {
    environment: { PATH: process.env.PATH ?? '', HOME: dir, npm_config_cache: join(dir, 'cache') },
  });

/** Lists files without -shm and -wal. SQLite removes them when a connection's last statement is collected. */
const filesOf = (directory: string) => readdirSync(directory).filter(name => !/-(shm|wal)$/.test(name));

test('upgrade --check reports a newer version and its migration with exit code 100, and changes nothing', async () => {
  const before = filesOf(dataDir);
  const ran = await check(registryOf('9001.0.0', '9001-tomorrow'));
  expect(ran).toMatchObject({ code: 100, err: '' });
  expect(ran.out).toContain('9001.0.0 is there');
  expect(ran.out).toContain(`is at ${OWN_SCHEMA}, and 9001.0.0 brings it to 9001-tomorrow at its first start`);
  expect(filesOf(dataDir)).toEqual(before);
});

test('upgrade --check ends with exit code 0 at the newest version, also with --json', async () => {
  const ran = await check(registryOf('0.0.1', '0001-instances'), '--json');
  expect(ran).toMatchObject({ code: 0, err: '' });
  expect(JSON.parse(ran.out)).toMatchObject({
    newest: '0.0.1',
    newer: false,
    schema: OWN_SCHEMA,
    nextSchema: OWN_SCHEMA,
  });
});

test('upgrade --check tells a missing package from an unreachable registry', async () => {
  const missing = await check((_, response) => {
    response.statusCode = 404;
    response.end('{}');
  });
  expect(missing).toMatchObject({ code: 1, err: expect.stringContaining('The registry has no package rookery') });
  const offline = await upgrade('--registry', 'http://127.0.0.1:9');
  expect(offline).toMatchObject({ code: 69, err: expect.stringContaining('The registry cannot be asked: ') });
});

test('upgrade without --check, or without npm, prints the next step', async () => {
  expect(await cli(['upgrade'])).toMatchObject({ code: 2, err: expect.stringContaining('add --check') });
  const ran = await cli(['upgrade', '--check', '--data-dir', dataDir], { environment: { PATH: dir } });
  expect(ran).toMatchObject({ code: 1, err: expect.stringContaining('npm is not installed') });
});

test.each([
  ['0.2.0', '0.1.9', true],
  ['0.10.0', '0.9.0', true],
  ['0.1.0', '0.1.0', false],
  ['0.1.0', '0.2.0', false],
  ['1.0.0', '1.0.0-rc.1', true],
  ['1.0.0-rc.1', '1.0.0', false],
])('isNewer compares %s with %s: %s', (version, than, expected) => {
  expect(isNewer(version, than)).toBe(expected);
});
