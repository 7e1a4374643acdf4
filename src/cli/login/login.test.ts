import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { authority } from '../../../test/parts/certificates.ts';
import { cli, json, type RunOptions, StubService } from '../../../test/parts/cli.ts';

let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'rookery-login-'));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

const run = (args: readonly string[], { environment, ...more }: RunOptions = {}) =>
  cli(args, { ...more, environment: { XDG_CONFIG_HOME: home, ...environment } });
const kept = () => JSON.parse(readFileSync(join(home, 'rookery/contexts.json'), 'utf8'));

/** Starts a frontend and meta_service that accept one token. */
const guarded = (token: string, host?: string) =>
  StubService.start(({ headers }, response) => {
    if (headers.authorization !== `Bearer ${token}`)
      json(response, 401, { code: 401, message: 'authentication failed: no such token' });
    else json(response, 200, { instances: [], code: 0, result: { functions: [] } });
  }, host);

const login = (service: StubService, name: string, more: readonly string[] = [], options: RunOptions = {}) =>
  run(['login', service.address, '--meta-address', service.address, '--name', name, ...more], options);

describe('rookery login', () => {
  test('login stores an accepted token in a private file, commands send the token, and logout removes it', async () => {
    await using service = await guarded('a.b.c');
    const ran = await login(service, 'one', [], { stdin: 'a.b.c\n' });
    expect(ran).toEqual({ code: 0, out: 'one\n', err: `Logged in to ${service.address}/.\n` });
    expect(statSync(join(home, 'rookery/contexts.json')).mode & 0o777).toBe(0o600);
    expect(readdirSync(join(home, 'rookery'))).toEqual(['contexts.json']);
    expect(await run(['agent', 'list'])).toMatchObject({ code: 0 });

    expect(await run(['logout'])).toMatchObject({ code: 0 });
    expect(JSON.stringify(kept())).not.toContain('a.b.c');
    expect(await run(['agent', 'list'])).toMatchObject({ code: 77 });
    // A second login uses the stored address.
    writeFileSync(join(home, 'token'), 'a.b.c\n');
    expect(await run(['login', '--token-file', join(home, 'token')])).toMatchObject({ code: 0, out: 'one\n' });
    expect(await run(['agent', 'list'])).toMatchObject({ code: 0 });
  });

  test('login does not store a refused or malformed token', async () => {
    await using service = await guarded('a.b.c');
    const refused = await login(service, 'one', [], { stdin: 'x.y.z' });
    expect(refused).toMatchObject({ code: 77, out: '' });
    expect(refused.err).toBe(
      `${service.address}/ does not take this token: authentication failed: no such token. Nothing was kept.\n`,
    );
    expect(await login(service, 'one', [], { stdin: '' })).toMatchObject({ code: 2 });
    expect(await login(service, 'one', [], { stdin: 'two words' })).toMatchObject({ code: 2 });
    expect(readdirSync(home)).toEqual([]);
  });

  test('login prompts for the token on a terminal without showing it', async () => {
    await using service = await guarded('a.b.c');
    const raw: boolean[] = [];
    const terminal = { size: () => ({ columns: 80, rows: 24 }), setRaw: (is: boolean) => void raw.push(is) };
    const keys = (async function* () {
      yield 'a.bx';
      yield '\x7f.c\r';
    })();
    const ran = await login(service, 'one', [], {
      terminal: { ...terminal, onResize: () => () => undefined },
      stdin: keys,
    });
    expect(ran).toMatchObject({ code: 0, out: 'one\n' });
    expect(ran.err).not.toContain('a.b');
    expect(raw).toEqual([true, false]);
  });

  test('login needs no token when the server has no authentication, and does not store an unreachable server', async () => {
    await using service = await StubService.start((_, response) => json(response, 200, { code: 0, instances: [] }));
    expect(await login(service, 'open')).toMatchObject({ code: 0, err: expect.stringContaining('asks for no token') });
    expect((await run(['login', 'http://127.0.0.1:1'])).code).toBe(69);
    expect(Object.keys(kept().servers)).toEqual(['open']);
  });

  test('login stores --ca-file, which a server with an unknown certificate needs', async () => {
    const { cert, issue } = authority('an authority of this test');
    const server = createServer(issue('localhost'), (_, response) => response.end('{"code":0,"instances":[]}'));
    await new Promise<void>(resolve => server.listen(0, 'localhost', resolve));
    try {
      const url = `https://localhost:${(server.address() as AddressInfo).port}`;
      const args = ['login', url, '--meta-address', url, '--name', 'tls'];
      expect((await run(args)).code).toBe(69);
      writeFileSync(join(home, 'ca.pem'), cert);
      expect(await run([...args, '--ca-file', join(home, 'ca.pem')])).toMatchObject({ code: 0 });
      expect(await run(['agent', 'list'])).toMatchObject({ code: 0 });
      // The stored CA file applies to the stored address only, not to another name of the same server.
      expect((await run(['agent', 'list', '--address', url.replace('localhost', '127.0.0.1')])).code).toBe(69);
    } finally {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    }
  });

  test('login uses the meta_service of the frontend, and needs no address of it', async () => {
    await using service = await guarded('a.b.c');
    const ran = await run(['login', service.address, '--name', 'one'], { stdin: 'a.b.c' });
    expect(ran).toEqual({ code: 0, out: 'one\n', err: `Logged in to ${service.address}/.\n` });
    expect(kept().servers.one.metaAddress).toBe(`${service.address}/api/meta`);
    expect(await run(['function', 'list'])).toMatchObject({ code: 0 });
    expect(service.last.url).toMatch(/^\/api\/meta\/serverless\//);
    expect(service.last.headers.authorization).toBe('Bearer a.b.c');
  });

  test('login warns when neither the frontend nor port 31182 has a meta_service', async () => {
    // No other test listens on port 31182 of this address.
    await using service = await StubService.start(
      ({ url }, response) =>
        url.startsWith('/api/meta')
          ? json(response, 404, { code: 404, message: `route not found: GET ${url}` })
          : json(response, 200, {}),
      '127.31.18.2',
    );
    const ran = await run(['login', service.address, '--name', 'one']);
    expect(ran).toMatchObject({ code: 0, err: expect.stringContaining('with --meta-address') });
  });

  test('login warns when the meta_service cannot be reached', async () => {
    await using service = await guarded('a.b.c');
    const args = ['login', service.address, '--meta-address', 'http://127.0.0.1:1', '--name', 'one'];
    const ran = await run(args, { stdin: 'a.b.c' });
    expect(ran).toMatchObject({ code: 0, err: expect.stringContaining('--meta-address') });
  });
});

describe('contexts', () => {
  test('a context gives its meta_service only to its own frontend', async () => {
    await using one = await guarded('a.b.c');
    await using meta = await guarded('a.b.c');
    await using other = await StubService.start((_, response) =>
      json(response, 200, { code: 0, result: { functions: [] } }),
    );
    await login(one, 'one', ['--meta-address', meta.address], { stdin: 'a.b.c' });
    expect(await run(['function', 'list', '--address', one.address])).toMatchObject({ code: 0 });
    expect(meta.last.url).toMatch(/^\/serverless\//);
    const { length } = meta.seen;
    expect(await run(['function', 'list', '--address', other.address])).toMatchObject({ code: 0 });
    expect(meta.seen).toHaveLength(length);
    expect(other.last.headers.authorization).toBeUndefined();
  });

  test('the current context is used unless --context, the environment or a single flag replaces it', async () => {
    await using one = await guarded('a.b.c');
    await using two = await guarded('d.e.f');
    await login(one, 'one', [], { stdin: 'a.b.c' });
    await login(two, 'two', ['--tenant', 't2'], { stdin: 'd.e.f' });
    expect(await run(['agent', 'list'])).toMatchObject({ code: 0 });
    expect(two.last.headers['x-tenant-id']).toBe('t2');
    expect(await run(['agent', 'list', '--context', 'one'])).toMatchObject({ code: 0 });
    expect(one.last.url).toContain('/api/agent?');
    const ROOKERY_CONTEXT = 'one';
    expect(await run(['agent', 'list'], { environment: { ROOKERY_CONTEXT } })).toMatchObject({ code: 0 });
    expect(await run(['agent', 'list', '--token', 'x'])).toMatchObject({ code: 77 });
    // The stored token and tenant are not sent to an address given by --address.
    expect(await run(['agent', 'list', '--address', one.address])).toMatchObject({ code: 77 });
    expect(one.last.headers).not.toHaveProperty('authorization');
    expect(one.last.headers).not.toHaveProperty('x-tenant-id');
  });

  test('list, show, use and remove work, and print no token', async () => {
    await using one = await guarded('a.b.c');
    await using two = await guarded('d.e.f');
    await login(one, 'one', [], { stdin: 'a.b.c' });
    await login(two, 'two', [], { stdin: 'd.e.f' });
    const list = await run(['context', 'list', '--json']);
    expect(JSON.parse(list.out)).toMatchObject([
      { name: 'one', is_current: false, has_token: true },
      { name: 'two', is_current: true, address: `${two.address}/` },
    ]);
    await run(['context', 'use', 'one']);
    const show = await run(['context', 'show']);
    expect(show.out).toMatch(/^name +one$/m);
    for (const { out } of [list, show, await run(['context', 'list'])]) expect(out).not.toMatch(/a\.b\.c|d\.e\.f/);
    await run(['context', 'use', '--none']);
    expect(await run(['context', 'show'])).toMatchObject({ code: 2 });
    await run(['context', 'remove', 'one']);
    expect(Object.keys(kept().servers)).toEqual(['two']);
    for (const args of [['use', 'one'], ['show', 'one'], ['remove', 'one'], ['use']])
      expect(await run(['context', ...args])).toMatchObject({ code: 2 });
    expect(await run(['agent', 'list', '--context', 'one'])).toMatchObject({
      code: 2,
      err: 'There is no context "one". There is two.\n',
    });
  });

  test('a contexts file of another format is reported and never overwritten', async () => {
    await using service = await guarded('a.b.c');
    await login(service, 'one', [], { stdin: 'a.b.c' });
    writeFileSync(join(home, 'rookery/contexts.json'), '{"servers": {"one": {}}}');
    for (const args of [['agent', 'list'], ['context', 'use', '--none'], ['logout']])
      expect(await run(args)).toMatchObject({ code: 78, err: expect.stringContaining('contexts.json cannot be read') });
    expect(kept()).toEqual({ servers: { one: {} } });
  });
});
