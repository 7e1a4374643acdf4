import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';

const LIVE_MS = 120_000;

interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: the tests look at members of JSON
  readonly body: any;
}

let served: Served;

beforeAll(async () => {
  served = await Served.start({ args: [STOP_AGENTS] });
}, LIVE_MS);
afterAll(async () => served?.remove(), LIVE_MS);

/** The requests of one tenant. */
class Tenant {
  readonly name = `t${randomUUID().slice(0, 8)}`;

  async send(method: string, path: string, body?: object, headers: Record<string, string> = {}): Promise<Answer> {
    const answer = await fetch(`${served.frontendUrl}/api/agent${path}`, {
      method,
      headers: { 'x-tenant-id': this.name, ...headers },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: await answer.json() };
  }

  async create(changes: object = {}): Promise<string> {
    const body = { namespace: 'default', name: `s-${randomUUID()}`, template: 'base', ...changes };
    const created = await this.send('POST', '', body);
    // A machine without networks of sandboxes adds a warning of its own.
    expect(created.body).toMatchObject({ code: 200, instance_id: expect.any(String) });
    return created.body.instance_id;
  }

  async exec(id: string, command: string): Promise<string> {
    return (await this.send('POST', `/${id}/exec`, { command })).body.stdout;
  }

  async record(id: string): Promise<Answer['body']> {
    return (await this.send('GET', `/${id}`)).body.instance;
  }

  async fork(id: string, body: object = {}, headers = {}): Promise<Answer> {
    return await this.send('POST', `/${id}/fork`, body, headers);
  }
}

test(
  'forks have the files, variables, labels and settings of the sandbox, and change alone afterwards',
  async () => {
    const tenant = new Tenant();
    const resources = { cpu: 300, memory: 200 };
    const id = await tenant.create({
      ...{ env_vars: { OF: 'first' }, labels: { of: 'first' }, idle_seconds: 900, ttl_seconds: 900 },
      runtime_spec: { runtime: 'python3', rootfs: { imageurl: 'base' }, ...resources },
    });
    await tenant.exec(id, 'echo one > /home/user/kept; mkdir /tmp/deep; echo two > /tmp/deep/kept');
    const { status, body: forks } = await tenant.fork(id, { count: 2 });
    expect({ status, count: new Set(forks.map((fork: { name: string }) => fork.name)).size }).toEqual({
      status: 201,
      count: 2,
    });
    await tenant.exec(id, 'echo later > /home/user/kept');
    for (const { instance_id, name } of forks) {
      expect(await tenant.exec(instance_id, 'cat /home/user/kept /tmp/deep/kept; echo $OF')).toBe('one\ntwo\nfirst\n');
      const record = await tenant.record(instance_id);
      expect(record).toMatchObject({ name, template: 'base', status: 'RUNNING', resources, labels: { of: 'first' } });
      expect(record).toMatchObject({ idle_seconds: 900, expires_at: expect.any(String) });
      await tenant.exec(instance_id, `echo ${name} > /home/user/kept`);
    }
    expect(await tenant.exec(id, 'cat /home/user/kept')).toBe('later\n');
    const [again] = (await tenant.fork(forks[0].instance_id)).body;
    expect(await tenant.exec(again.instance_id, 'cat /home/user/kept')).toBe(`${forks[0].name}\n`);
  },
  LIVE_MS,
);

test(
  'names, namespace, variables and time to live of the request apply to the forks',
  async () => {
    const tenant = new Tenant();
    const id = await tenant.create({ env_vars: { A: 'a', B: 'b' } });
    const body = { name: 'try', namespace: 'other', count: 2, env_vars: { B: 'new' }, ttl_seconds: 600 };
    const { body: forks } = await tenant.fork(id, body);
    expect(forks.map((fork: { name: string }) => fork.name)).toEqual(['try-1', 'try-2']);
    expect(await tenant.exec(forks[1].instance_id, 'echo $A $B')).toBe('a new\n');
    const { namespace, expires_at, start_time } = await tenant.record(forks[1].instance_id);
    expect(namespace).toBe('other');
    expect(Date.parse(expires_at) - Date.parse(start_time)).toBeGreaterThan(590_000);
    expect((await tenant.record(id)).expires_at).toBeUndefined();
  },
  LIVE_MS,
);

test(
  'a fork is refused with the process that runs, and starts without it when the files suffice',
  async () => {
    const tenant = new Tenant();
    const id = await tenant.create();
    await tenant.exec(id, 'echo kept > /home/user/file; setsid sleep 4321 > /dev/null 2>&1 &');
    const refused = await tenant.fork(id);
    expect(refused.status).toBe(400);
    expect(refused.body.message).toMatch(
      /copies files, not memory; the sandbox runs: \d+ sleep 4321; .*set files_only/,
    );
    const { status, body: forks } = await tenant.fork(id, { files_only: true });
    expect({ status, count: forks.length }).toEqual({ status: 201, count: 1 });
    expect(await tenant.exec(forks[0].instance_id, 'cat /home/user/file; pgrep sleep')).toBe('kept\n');
  },
  LIVE_MS,
);

test(
  'a repeated fork with its idempotency key answers with the same sandboxes',
  async () => {
    const tenant = new Tenant();
    const id = await tenant.create();
    const headers = { 'idempotency-key': 'once' };
    const first = await tenant.fork(id, { count: 2 }, headers);
    expect(await tenant.fork(id, { count: 2 }, headers)).toEqual(first);
    const other = await tenant.fork(id, { count: 1 }, headers);
    expect(other.body).toEqual([{ error: { code: 409, message: expect.stringContaining('once') } }]);
  },
  LIVE_MS,
);

test(
  'the entry of a fork whose name is taken has the error, and the other forks start',
  async () => {
    const tenant = new Tenant();
    const id = await tenant.create();
    const taken = await tenant.create({ name: 'try-1' });
    const { status, body } = await tenant.fork(id, { name: 'try', count: 2 });
    expect(status).toBe(201);
    expect(body).toEqual([
      { error: expect.objectContaining({ code: 409, instance_id: taken }) },
      { instance_id: expect.any(String), name: 'try-2' },
    ]);
  },
  LIVE_MS,
);

test(
  'a fork of an agent with code is refused with what can be forked',
  async () => {
    const tenant = new Tenant();
    const python = (await findInterpreters()).at(-1)?.version;
    const runtime_spec = { runtime: `python${python}`, rootfs: { imageurl: 'host' }, codePath: '/tmp', handler: 'a.b' };
    const id = await tenant.create({ template: '', runtime_spec });
    expect(await tenant.fork(id)).toMatchObject({
      status: 409,
      body: {
        message: `instance ${id} has code, whose memory cannot be copied: only sandboxes without code can be forked`,
      },
    });
    const durable = await tenant.create({ template: '', runtime_spec, durable: true });
    expect(await tenant.fork(durable)).toMatchObject({
      status: 409,
      body: { message: `instance ${durable} is durable: only sandboxes without code can be forked` },
    });
  },
  LIVE_MS,
);

test(
  'a fork of the sandbox of another tenant is not found',
  async () => {
    const id = await new Tenant().create();
    expect(await new Tenant().fork(id)).toMatchObject({ status: 404 });
  },
  LIVE_MS,
);

test(
  'rookery sandbox fork prints the ids of the forks, and fails with the reason of a missing one',
  async () => {
    const name = `cli-${randomUUID()}`;
    const cli = async (...args: readonly string[]) => {
      const command = [join(ROOT, 'dist/main.js'), 'sandbox', ...args, '--address', served.frontendUrl];
      return await run(process.execPath, command, { capture: true });
    };
    expect(await cli('create', name)).toMatchObject({ code: 0 });
    const forked = await cli('fork', name, '--count', '2', '--name', name, '-e', 'A=b', '--ttl', '10m');
    expect(forked).toMatchObject({ code: 0, output: expect.stringMatching(/^[0-9a-f-]{36}\n[0-9a-f-]{36}\n$/) });
    expect(await cli('fork', name, '--name', name)).toMatchObject({
      code: 1,
      output: expect.stringContaining(`a fork did not start: `),
    });
  },
  LIVE_MS,
);
