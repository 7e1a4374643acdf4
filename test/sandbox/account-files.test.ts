import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ServiceError } from '../../src/core/error.ts';
import type { SandboxAccess } from '../../src/sandbox/access.ts';
import type { SandboxDriver, SandboxSpec } from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';
import { describeWith } from '../probe.ts';
import { ProcessFixture } from './process-fixture.ts';

const HOME_OF_ROOT = '/root';

const WAIT_MS = 30_000;
const RACES = 60;
const SECRET = 'a secret of the host';
const USER = { user: '' };
const ROOT = { user: 'root' };

// Two accounts need the layer `user_limits`, which only a service as root has.
describeWith(['root'], 'files of the accounts of a process sandbox', () => {
  const fixture = new ProcessFixture();
  let driver: SandboxDriver;
  let access: SandboxAccess;
  let outside: string;
  let workspace: string;

  const signal = () => AbortSignal.timeout(WAIT_MS);

  beforeAll(async () => {
    outside = mkdtempSync(join(tmpdir(), 'rookery-outside-'));
    writeFileSync(join(outside, 'secret'), SECRET, { mode: 0o600 });
    workspace = mkdtempSync(join(tmpdir(), 'rookery-workspace-'));
    mkdirSync(join(workspace, 'of-the-host'));
    writeFileSync(join(workspace, 'of-the-host', 'file'), SECRET, { mode: 0o600 });
    driver = fixture.driver();
    await available(driver);
    const { mounts, ...spec } = fixture.spec();
    const own: SandboxSpec = {
      ...spec,
      mounts: [...mounts, { source: workspace, target: '/data', readonly: false }],
      hasAccounts: true,
      command: { kind: 'exec', argv: [] },
      workingDir: '/home/user',
      env: { PATH: '/usr/bin:/bin', HOME: '/home/user' },
    };
    const { handle } = await driver.start(own, signal());
    const given = driver.access?.(handle);
    if (given === undefined) throw new Error('the driver gives no access');
    access = given;
  });

  afterAll(async () => {
    await fixture.dispose();
    for (const directory of [outside, workspace]) rmSync(directory, { recursive: true, force: true });
  });

  const put = (path: string, options: { user: string }, content = 'new') =>
    access.writeInPlace(path, { ...options, metadata: null }, Readable.from([Buffer.from(content)]), signal());
  const get = async (path: string, options = USER) => {
    const file = await access.readFile(path, options, signal());
    return await text(file.read(0, file.sizeBytes));
  };
  const run = async (script: string) => {
    const exec = await access.openExec(
      { argv: ['sh', '-c', script], workingDir: '', env: {}, terminal: null },
      signal(),
    );
    const [stdout] = await Promise.all([text(exec.stdout), text(exec.stderr), exec.ended]);
    return stdout;
  };

  test('files and parents belong to the named account, below its home', async () => {
    expect(await put('made/file', USER)).toMatchObject({ path: '/home/user/made/file', owner: 'user', group: 'user' });
    expect(await access.statFile('~/made', USER, signal())).toMatchObject({
      owner: 'user',
      group: 'user',
      mode: 0o755,
    });
    expect(await put('made/file', ROOT)).toMatchObject({
      path: `${HOME_OF_ROOT}/made/file`,
      owner: 'root',
      group: 'root',
    });
    expect(await access.createDirectory('/opt/x/y', USER, signal())).toMatchObject({ owner: 'user' });
    expect(await access.statFile('/opt/x', USER, signal())).toMatchObject({ owner: 'user' });
    expect((await access.statFile('', ROOT, signal())).path).toBe('/root');
  });

  test('an overwritten file gets the account as its owner and keeps its mode', async () => {
    await put('/tmp/owned', ROOT);
    await run('true');
    expect(await put('/tmp/owned', USER)).toMatchObject({ owner: 'user', mode: 0o644 });
  });

  test('operations for any account reach all files of the sandbox', async () => {
    await put(`${HOME_OF_ROOT}/private/file`, ROOT, 'of root');
    await run('umask 077; mkdir -p ~/closed && echo of user > ~/closed/file');
    expect(await get(`${HOME_OF_ROOT}/private/file`)).toBe('of root');
    expect(await get('/home/user/closed/file', ROOT)).toBe('of user\n');
    await put('/opt/written', USER);
    expect(await run('cat /opt/written')).toBe('new');
    await access.renameFile('/opt/written', '/workspace/deep/moved', USER, signal());
    await access.removeFile('/workspace', USER, signal());
    expect(await run('ls -d /workspace /opt/written')).toBe('');
  });

  test('metadata are stored for all accounts', async () => {
    const write = (path: string, options: { user: string }) =>
      access.writeInPlace(path, { ...options, metadata: { kind: 'x' } }, Readable.from(['y']), signal());
    expect((await write('/home/user/marked', USER)).metadata).toEqual({ kind: 'x' });
    expect((await write(`${HOME_OF_ROOT}/marked`, ROOT)).metadata).toEqual({ kind: 'x' });
  });

  test('without an account the default one works with its own rights', async () => {
    const own = { user: null };
    await put(`${HOME_OF_ROOT}/mine`, ROOT);
    await expect(access.readFile(`${HOME_OF_ROOT}/mine`, own, signal())).rejects.toMatchObject({
      code: 'permission_denied',
    });
    await expect(access.removeFile(`${HOME_OF_ROOT}/mine`, own, signal())).rejects.toMatchObject({
      code: 'permission_denied',
    });
    expect((await access.createDirectory('own', own, signal())).path).toBe('/home/user/own');
  });

  test('a watch for an account reports changes in closed directories', async () => {
    await run('mkdir -p ~/watched && chmod 700 ~/watched');
    const watch = await access.watchDirectory('watched', { user: '', recursive: true, withFacts: true }, signal());
    await put('watched/sub/file', USER);
    await watch.flush();
    const events = watch.drain();
    expect(events.map(({ type, name }) => `${type} ${name}`)).toEqual(
      expect.arrayContaining(['create sub', 'create sub/file', 'write sub/file']),
    );
    expect(events.at(-1)?.facts).toMatchObject({ owner: 'user' });
    watch.close();
  });

  /** Codes of an operation that did not reach the host. */
  const KEPT = ['not_found', 'permission_denied', 'invalid_request', 'unavailable', 'failed_precondition'];
  const isKept = (error: unknown) => error instanceof ServiceError && KEPT.includes(error.code);

  const attacks: [string, (path: string) => string][] = [
    ['..', path => `/data/${'../'.repeat(20)}${path.slice(1)}`],
    ['an absolute link', path => `/tmp/absolute${path}`],
    ['/proc/self/root', path => `/proc/self/root${path}`],
    ['/proc/self/cwd', path => `/proc/self/cwd${path}`],
    ['the root of init', path => `/proc/1/root${path}`],
    ['the directory of init', path => `/proc/1/cwd/${'../'.repeat(20)}${path.slice(1)}`],
    ['a descriptor of init', () => '/proc/1/fd/0/secret'],
  ];

  test.each(attacks)('root inside does not reach the host by %s', async (_name, pathOf) => {
    await run('ln -sfn / /tmp/absolute');
    const path = pathOf(join(outside, 'secret'));
    for (const options of [USER, ROOT]) {
      await expect(get(path, options)).rejects.toSatisfy(isKept);
      await access.removeFile(path, options, signal()).catch(error => expect(error).toSatisfy(isKept));
      await put(path, options).catch(error => expect(error).toSatisfy(isKept));
      const target = `${path}-moved`;
      await access
        .renameFile('/home/user/none', target, options, signal())
        .catch(error => expect(error).toSatisfy(isKept));
      // The write may have made the same path inside.
      await access.removeFile(path, options, signal()).catch(error => expect(error).toSatisfy(isKept));
    }
    expect(readdirSync(outside)).toEqual(['secret']);
    expect(readFileSync(join(outside, 'secret'), 'utf8')).toBe(SECRET);
  });

  test('root inside has no rights over files of the host in a mount', async () => {
    for (const options of [USER, ROOT]) {
      await expect(get('/data/of-the-host/file', options)).rejects.toSatisfy(isKept);
      await expect(put('/data/of-the-host/file', options)).rejects.toSatisfy(isKept);
      await expect(put('/data/of-the-host/new', options)).rejects.toSatisfy(isKept);
      await expect(access.removeFile('/data/of-the-host', options, signal())).rejects.toSatisfy(isKept);
      await expect(access.renameFile('/data/of-the-host', '/data/x', options, signal())).rejects.toSatisfy(isKept);
    }
    expect(readFileSync(join(workspace, 'of-the-host', 'file'), 'utf8')).toBe(SECRET);
  });

  test('code that swaps directories for links changes only files of the sandbox', async () => {
    await run(`mkdir -p /tmp/race/real/sub ${outside} && ln -sfn ${outside} /tmp/race/link`);
    const swapping = await access.openExec(
      {
        argv: [
          'sh',
          '-c',
          'cd /tmp/race; while :; do mv -T real spare; ln -s link real; mkdir -p spare/sub; rm real; mv -T spare real; done',
        ],
        workingDir: '',
        env: {},
        terminal: null,
      },
      signal(),
    );
    swapping.ended.catch(() => undefined);
    try {
      for (let count = 0; count < RACES; count++) {
        await put('/tmp/race/real/sub/file', ROOT).catch(error => expect(error).toSatisfy(isSafe));
        await access.removeFile('/tmp/race/real/sub', ROOT, signal()).catch(error => expect(error).toSatisfy(isSafe));
        await access
          .createDirectory('/tmp/race/real/made/x', ROOT, signal())
          .catch(error => expect(error).toSatisfy(isSafe));
      }
    } finally {
      swapping.kill();
    }
    expect(readdirSync(outside)).toEqual(['secret']);
    expect(existsSync(join(outside, 'sub'))).toBe(false);
  });

  test('code inside can neither inspect nor open what serves its files', async () => {
    const watch = await access.watchDirectory('/tmp', { user: '', recursive: false, withFacts: false }, signal());
    const found = await run(
      'for p in /proc/[0-9]*; do grep -q "^Name:.init" $p/status 2>/dev/null && ls $p/fd 2>/dev/null; done; true',
    );
    expect(found).toBe('');
    watch.close();
  });
});

/** Codes that a race may cause. */
function isSafe(error: unknown): boolean {
  return (
    error instanceof ServiceError &&
    [
      'not_found',
      'invalid_request',
      'unavailable',
      'failed_precondition',
      'already_exists',
      'permission_denied',
    ].includes(error.code)
  );
}
