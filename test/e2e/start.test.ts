import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, rename, rm, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { Served } from '../../scripts/served.ts';
import { Bed } from './agents.ts';

const MAIN = join(ROOT, 'dist/main.js');
const COUNTER = `
n = 0
def count(event, context):
    global n
    n += 1
    return n
`;
const WAIT_MS = 30_000;
const MANY = 200;

let bed: Bed;
beforeEach(async () => {
  bed = await Bed.start({ 'counter.py': COUNTER });
});
afterEach(() => bed?.[Symbol.asyncDispose]());

/** Returns the output of a start that is refused; fails when it is not refused. */
async function refusedStart(): Promise<string> {
  const { code, output } = await run(
    process.execPath,
    [MAIN, 'serve', '--data-dir', bed.server.dataDir, '--port', '0', '--meta-port', '0'],
    { capture: true },
  );
  expect(code).toBe(1);
  return output;
}

const recover = (...args: string[]) =>
  run(process.execPath, [MAIN, 'recover', '--data-dir', bed.server.dataDir, ...args], { capture: true });

async function sandboxPid(id: string): Promise<number> {
  const { body } = await bed.ask('GET', `/api/agent/${id}`);
  return Number((body.instance as { sandbox_id: string }).sandbox_id);
}

function family(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  return [pid, ...children.flatMap(family)];
}

describe('a server that listens but has not finished its start', () => {
  it('a starting server answers only health, and a create that kill -9 interrupted makes one agent when repeated with its key', async () => {
    const silent = await bed.create('silent', 'counter.count');
    const stopped = family(await sandboxPid(silent));
    // The start waits for a silent agent, so the server stays in this state.
    for (const pid of stopped) process.kill(pid, 'SIGSTOP');
    await bed.server.end('SIGKILL');
    await bed.disconnect();
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const args = ['serve', '--data-dir', bed.server.dataDir, '--port', String(port), '--meta-port', '0'];
    const starting: ChildProcess = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'ignore'] });
    let said = '';
    starting.stdout?.on('data', chunk => {
      said += chunk;
    });
    try {
      await vi.waitFor(async () => expect((await fetch(`${url}/healthz`)).status).toBe(200), {
        timeout: WAIT_MS,
        interval: 20,
      });
      const readiness = await fetch(`${url}/readyz`);
      expect([readiness.status, await readiness.json()]).toMatchObject([503, { components: { server: 'starting' } }]);
      const create = fetch(`${url}/api/agent`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': 'once' },
        body: JSON.stringify(bed.createBody('once', 'counter.count')),
      });
      create.catch(() => undefined);
      expect((await fetch(`${url}/healthz`)).status).toBe(200);
      expect(said).not.toContain('ready');
      starting.kill('SIGKILL');
      await once(starting, 'exit');
      await expect(create).rejects.toThrow();
    } finally {
      starting.kill('SIGKILL');
      for (const pid of stopped) process.kill(pid, 'SIGCONT');
    }
    bed.server = await bed.server.next();
    const headers = { 'idempotency-key': 'once' };
    const answers = await Promise.all(
      [1, 2].map(() => bed.ask('POST', '/api/agent', bed.createBody('once', 'counter.count'), { headers })),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect(new Set(answers.map(({ body }) => body.instance_id)).size).toBe(1);
    expect((await bed.invoke(String(answers[0]?.body.instance_id))).body.data).toBe(1);
    expect((await bed.invoke(silent)).body.data).toBe(1);
  }, 120_000);
});

/**
 * Python program that opens the database while a command runs; argv is the file, the number of rows, the
 * command. Its connection ends with the program. A connection of the test process would close at garbage
 * collection and could remove the log of a later server.
 */
const WITH_MANY_ROWS = `
import json, sqlite3, subprocess, sys
file, many, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
database = sqlite3.connect(file, isolation_level=None)
columns = [row[1] for row in database.execute('pragma table_info(instances)')]
own = {'id': "'many-' || number", 'owner_kind': "'function'", 'owner_key': "'u'"}
database.execute(
    'with recursive numbers(number) as (select 1 union all select number + 1 from numbers where number < ?) '
    'insert into instances (%s) select %s from instances, numbers'
    % (', '.join(columns), ', '.join(own.get(column, column) for column in columns)), [many])
ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
left = database.execute("delete from instances where owner_kind = 'function'").rowcount
print(json.dumps({'code': ended.returncode, 'output': ended.stdout, 'left': left}))
`;

import { freePort } from '../parts/free-port.ts';

describe('a start with too few file descriptors', () => {
  it('a start with too few file descriptors fails before it changes anything, and every agent continues', async () => {
    const id = await bed.create('kept', 'counter.count');
    await bed.invoke(id);
    await bed.server.end('SIGKILL');
    const serve = [MAIN, 'serve', '--data-dir', bed.server.dataDir, '--port', '0', '--meta-port', '0'];
    const command = ['sh', '-c', 'ulimit -n 400; exec "$0" "$@"', process.execPath, ...serve];
    // The start of that many instances would take a minute.
    const rows = [join(bed.server.dataDir, 'rookery.db'), String(MANY)];
    const other = await run('python3', ['-c', WITH_MANY_ROWS, ...rows, ...command], { capture: true });
    expect(JSON.parse(other.output)).toEqual({
      code: 1,
      output: expect.stringMatching(
        /may open 400 files, and looking after the 201 sandboxes .* takes about 731: .*nothing has been touched/,
      ),
      left: MANY,
    });
    // The other program removed the log of the database.
    expect((await recover('--apply')).code).toBe(0);
    bed.server = await bed.server.next();
    expect((await bed.invoke(id)).body.data).toBe(2);
  }, 120_000);
});

describe('the data directory', () => {
  it('a data directory without node-id is refused and keeps its agents, and recover restores the file with --apply', async () => {
    const id = await bed.create('kept', 'counter.count');
    await bed.invoke(id);
    await bed.server.end('SIGKILL');
    await unlink(join(bed.server.dataDir, 'node-id'));
    expect(await refusedStart()).toMatch(/node-id of the data directory .* is missing or empty/);
    const shown = await recover();
    expect(shown).toMatchObject({ code: 1, output: expect.stringContaining('With --apply: write ') });
    expect(await refusedStart()).toContain('node-id');
    expect((await recover('--apply')).code).toBe(0);
    expect(await recover()).toMatchObject({ code: 0, output: expect.stringContaining('Nothing is missing') });
    bed.server = await bed.server.next();
    expect((await bed.invoke(id)).body.data).toBe(2);
  }, 120_000);

  it('a data directory without its database is refused while agents run, which serve when it is restored', async () => {
    const id = await bed.create('kept', 'counter.count');
    await bed.invoke(id);
    await bed.server.end('SIGKILL');
    const { dataDir } = bed.server;
    const aside = await mkdtemp(join(tmpdir(), 'rookery-aside-'));
    const names = (await readdir(dataDir)).filter(name => name.startsWith('rookery.db'));
    for (const name of names) await rename(join(dataDir, name), join(aside, name));
    expect(await refusedStart()).toMatch(/rookery\.db .* is missing while 1 sandbox of an earlier service is left/);
    expect((await recover()).output).toContain(id);
    for (const name of names) await rename(join(aside, name), join(dataDir, name));
    await rm(aside, { recursive: true });
    bed.server = await bed.server.next();
    expect((await bed.invoke(id)).body.data).toBe(2);
  }, 120_000);

  it('a service whose database is lost acknowledges no more writes and reports the loss', async () => {
    const id = await bed.create('kept', 'counter.count');
    const { dataDir } = bed.server;
    const aside = await mkdtemp(join(tmpdir(), 'rookery-aside-'));
    const names = (await readdir(dataDir)).filter(name => name.startsWith('rookery.db'));
    for (const name of names) await rename(join(dataDir, name), join(aside, name));
    expect(await bed.ask('POST', '/api/agent', bed.createBody('lost', 'counter.count'))).toMatchObject({
      status: 500,
      body: { message: expect.stringContaining('was removed or replaced while the service ran') },
    });
    const readiness = await bed.ask('GET', '/readyz');
    expect(readiness).toMatchObject({
      status: 503,
      body: { components: { storage: expect.stringContaining('rookery.db') } },
    });
    // Calls need no storage.
    expect((await bed.invoke(id)).body.data).toBe(1);
    await bed.server.end('SIGKILL');
    for (const name of names) await rename(join(aside, name), join(dataDir, name));
    await rm(aside, { recursive: true });
    bed.server = await bed.server.next();
    expect((await bed.invoke(id)).body.data).toBe(2);
  }, 120_000);

  it('a data directory admits no second service, also when its lock file is deleted', async () => {
    expect(await refusedStart()).toContain('belongs to another running service');
    await unlink(join(bed.server.dataDir, 'lock'));
    expect(await refusedStart()).toContain('belongs to another running service');
  }, 120_000);

  it('a data directory has no write-ahead log after a clean stop, and only known agents serve with an older copy', async () => {
    const known = await bed.create('known', 'counter.count');
    await bed.invoke(known);
    expect(await bed.server.end()).toBe(0);
    const { dataDir } = bed.server;
    expect((await readdir(dataDir)).filter(name => name.endsWith('-wal') || name === 'running')).toEqual([]);
    const backup = join(await mkdtemp(join(tmpdir(), 'rookery-backup-')), 'rookery.db');
    await cp(join(dataDir, 'rookery.db'), backup);
    bed.server = await bed.server.next({ args: ['--set', 'orphanGraceMs=100'] });
    await bed.disconnect();
    const younger = await bed.create('younger', 'counter.count');
    const pid = await sandboxPid(younger);
    expect(await bed.server.end()).toBe(0);
    await cp(backup, join(dataDir, 'rookery.db'));
    await rm(join(backup, '..'), { recursive: true });
    const { code, output } = await recover();
    expect([code, output]).toEqual([0, expect.stringMatching(new RegExp(`the next service ends: ${younger}`))]);
    bed.server = await bed.server.next();
    await bed.disconnect();
    expect((await bed.invoke(known)).body.data).toBe(2);
    expect((await bed.invoke(younger)).status).toBe(404);
    await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), { timeout: WAIT_MS });
  }, 120_000);
});

it('unpacked files are readable by the users of sandboxes with any umask of the shell', async () => {
  await bed.server.remove();
  bed.server = await Served.start({ under: ['sh', '-c', 'umask 077; exec "$@"', 'sh'] });
  const work = join(bed.codeDir, 'work');
  await mkdir(join(work, 'inner'), { recursive: true });
  await writeFile(join(work, 'inner/text'), 'x');
  await run('python3', ['-m', 'zipfile', '-c', join(bed.codeDir, 'work.zip'), `${work}/inner`], { capture: true });
  const name = '_ray_pkg_0123456789abcdef.zip';
  const put = await fetch(`${bed.server.frontendUrl}/api/packages/gcs/${name}`, {
    method: 'PUT',
    body: readFileSync(join(bed.codeDir, 'work.zip')),
  });
  expect(put.status).toBe(200);
  const { body } = await bed.ask('POST', '/api/jobs', {
    entrypoint: 'stat -c %a . inner inner/text | tr "\\n" " "',
    runtime_env: { working_dir: `gcs://${name}` },
  });
  const job = `/api/jobs/${body.submission_id}`;
  await vi.waitFor(async () => expect((await bed.ask('GET', job)).body.status).toBe('SUCCEEDED'), { timeout: WAIT_MS });
  expect((await bed.ask('GET', `${job}/logs`)).body.logs).toContain('755 755 644');
});
