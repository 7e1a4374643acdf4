import { chmodSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { checkDurableFiles } from '../suites/durable-files.ts';
import { Bed } from './agents.ts';

const CODE = `
import os
n = 0
def count(event, context):
    global n
    n += 1
    print("call", n)
    return n
def remember(event, context):
    context.state["n"] = context.state.get("n", 0) + 1
    return context.state["n"]
def listen(event, context):
    import threading
    from http.server import HTTPServer, SimpleHTTPRequestHandler
    threading.Thread(target=HTTPServer(("0.0.0.0", 8080), SimpleHTTPRequestHandler).serve_forever, daemon=True).start()
def end(event, context):
    os._exit(event)
`;
const SERVER = `
from http.server import BaseHTTPRequestHandler, HTTPServer
class Echo(BaseHTTPRequestHandler):
    def log_message(self, *ignored): pass
    def do_GET(self): self.send_error(404)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", 8000), Echo).serve_forever()
`;
const SUPERVISED = { sandbox_type: 'supervisor' };
const WAIT_MS = 20_000;
const waitFor = <T>(look: () => T | Promise<T>) => vi.waitFor(look, { timeout: WAIT_MS, interval: 20 });

/** A served Rookery whose agents are programs of the test's own supervisord. */
class SupervisedBed {
  readonly bed: Bed;
  readonly supervisord: TestSupervisord;

  private constructor(bed: Bed, supervisord: TestSupervisord) {
    this.bed = bed;
    this.supervisord = supervisord;
  }

  static async start(): Promise<SupervisedBed> {
    const supervisord = await TestSupervisord.start();
    const env = { ROOKERY_SUPERVISOR_URL: supervisord.url, ROOKERY_SUPERVISOR_INCLUDE_DIR: supervisord.includeDir };
    try {
      return new SupervisedBed(await Bed.start({ 'code.py': CODE, 'server.py': SERVER }, { env }), supervisord);
    } catch (error) {
      await supervisord.dispose();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.bed[Symbol.asyncDispose]();
    // The service has deleted its agents, so supervisord must have no residue.
    const left = { programs: this.supervisord.programs(), files: this.supervisord.included() };
    await this.supervisord.dispose();
    expect(left).toEqual({ programs: [], files: [] });
  }

  /** Creates an agent and returns its id. */
  create(name: string, handler: string): Promise<string> {
    return this.bed.create(name, handler, SUPERVISED);
  }

  /** Returns the agent's record with the name of its program in supervisord. */
  async record(id: string): Promise<{ status: string; status_reason: string; sandbox_id: string }> {
    return (await this.bed.ask('GET', `/api/agent/${id}`)).body.instance as never;
  }

  async isFailed(id: string, reason: string): Promise<void> {
    await waitFor(async () => {
      expect(await this.record(id)).toMatchObject({ status: 'FAILED', status_reason: expect.stringContaining(reason) });
    });
  }
}

describeWith(['supervisor'], 'agents with sandbox_type supervisor', () => {
  let under: SupervisedBed;
  beforeAll(async () => {
    under = await SupervisedBed.start();
  });
  afterAll(() => under?.[Symbol.asyncDispose]());

  test('agents of supervisord run calls, commands and logs, and leave no residue after the delete', async () => {
    const { bed, supervisord } = under;
    const id = await under.create('first', 'code.count');
    expect((await bed.invoke(id)).body.data).toBe(1);
    expect((await bed.invoke(id)).body.data).toBe(2);
    const { sandbox_id: program } = await under.record(id);
    expect(supervisord.programs()).toContain(program);
    const executed = await bed.ask('POST', `/api/agent/${id}/exec`, {
      command: ['sh', '-c', 'echo $ROOKERY_INSTANCE_ID'],
    });
    expect(executed).toMatchObject({ status: 200, body: { returncode: 0, stdout: `${id}\n` } });
    const logs = await fetch(`${bed.server.frontendUrl}/api/agent/${id}/logs`);
    expect(await logs.text()).toBe('call 1\ncall 2\n');
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    expect(supervisord.programs()).not.toContain(program);
    expect(supervisord.included().filter(name => name.includes(program))).toEqual([]);
    expect(readdirSync(join(bed.server.dataDir, 'run/supervisor/instances'))).toEqual([]);
  });

  test('a durable agent of supervisord sleeps without a program, and its next call starts it with its state', async () => {
    const { bed, supervisord } = under;
    const id = await bed.create('durable', 'code.remember', SUPERVISED, { durable: true });
    expect((await bed.invoke(id)).body.data).toBe(1);
    const { sandbox_id: program } = await under.record(id);
    expect(await bed.ask('POST', `/api/agent/${id}/sleep`)).toMatchObject({ status: 200 });
    expect(await under.record(id)).toMatchObject({ status: 'SLEEPING', sandbox_id: '' });
    expect(supervisord.programs()).not.toContain(program);
    expect((await bed.invoke(id)).body.data).toBe(2);
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
  });

  test('the directory of a durable agent of supervisord survives its programs', async () => {
    await checkDurableFiles(under.bed, SUPERVISED);
  });

  test('agents of supervisord run HTTP servers', async () => {
    const { bed } = under;
    const bootstrap = join(bed.codeDir, 'bootstrap');
    writeFileSync(bootstrap, `#!/bin/sh\nexec python3 /code/server.py\n`);
    chmodSync(bootstrap, 0o755);
    const id = await bed.create('http', '', { ...SUPERVISED, runtime: 'http' });
    expect((await bed.invoke(id, { a: 1 })).body.data).toEqual({ a: 1 });
    await bed.ask('DELETE', `/api/agent/${id}`);
  });

  test('agents of supervisord publish ports, which stay the same after a kill of the server', async context => {
    const { bed } = under;
    const id = await bed.create('ports', 'code.listen', {
      ...SUPERVISED,
      rootfs: { imageurl: 'host', ports: ['tcp:8080'] },
    });
    await bed.invoke(id);
    const read = async () =>
      (await under.record(id)) as { warnings?: string[]; port_mappings?: { host_port: number }[] };
    const [before] = (await read()).port_mappings ?? [];
    if (before === undefined) {
      await bed.ask('DELETE', `/api/agent/${id}`);
      return context.skip(`no network of their own: ${(await read()).warnings?.join(' ')}`);
    }
    expect((await fetch(`http://127.0.0.1:${before.host_port}/`)).status).toBe(200);
    await bed.killAndRestart();
    expect((await read()).port_mappings).toEqual([before]);
    await waitFor(async () => expect((await fetch(`http://127.0.0.1:${before.host_port}/`)).status).toBe(200));
    await bed.ask('DELETE', `/api/agent/${id}`);
    await expect(fetch(`http://127.0.0.1:${before.host_port}/`)).rejects.toThrow();
  });

  test('agents of supervisord continue after kill -9 of the server and serve the next one with their memory', async () => {
    const { bed, supervisord } = under;
    const ids = await Promise.all(Array.from({ length: 8 }, (_, index) => under.create(`s${index}`, 'code.count')));
    await Promise.all(ids.map(id => bed.invoke(id)));
    const before = await Promise.all(ids.map(id => under.record(id)));
    await bed.killAndRestart();
    const answers = await Promise.all(ids.map(id => bed.invoke(id)));
    expect(answers.map(({ body }) => body.data)).toEqual(ids.map(() => 2));
    // The programs that waited for an instance ended with their server.
    const programs = before.map(({ sandbox_id }) => sandbox_id).sort();
    await waitFor(() => expect([...supervisord.programs()].sort()).toEqual(programs));
    await Promise.all(ids.map(id => bed.ask('DELETE', `/api/agent/${id}`)));
  });

  test('agents of supervisord are FAILED with their exit code when they exit', async () => {
    const id = await under.create('ends', 'code.end');
    await under.bed.invoke(id, 3);
    await under.isFailed(id, 'exit code 3');
    await under.bed.ask('DELETE', `/api/agent/${id}`);
  });

  test('agents of supervisord are FAILED with the reason when an operator stops their program', async () => {
    const id = await under.create('stopped', 'code.count');
    await under.bed.invoke(id);
    under.supervisord.control('stop', (await under.record(id)).sandbox_id);
    await under.isFailed(id, 'supervisord stopped it');
    await under.bed.ask('DELETE', `/api/agent/${id}`);
  });

  test('agents of supervisord are FAILED with the reason after its restart, and new ones start at once', async () => {
    const { bed, supervisord } = under;
    const id = await under.create('restarted', 'code.count');
    await bed.invoke(id);
    await supervisord.stop();
    await under.isFailed(id, 'supervisord stopped it');
    const refused = await bed.ask('POST', '/api/agent', bed.createBody('away', 'code.count', SUPERVISED));
    expect(refused.body.message).toMatch(/^failed to create agent: .*supervisord does not answer at unix:/);
    await supervisord.start();
    const next = await under.create('away', 'code.count');
    expect((await bed.invoke(next)).body.data).toBe(1);
    await Promise.all([id, next].map(one => bed.ask('DELETE', `/api/agent/${one}`)));
    expect(readdirSync(join(bed.server.dataDir, 'run/supervisor/instances'))).toEqual([]);
  });

  test('agents are refused with the missing configuration line when supervisord does not read the include directory', async () => {
    const { bed, supervisord } = under;
    supervisord.configure({ include: null });
    await supervisord.stop();
    await supervisord.start();
    try {
      const { status, body } = await bed.ask('POST', '/api/agent', bed.createBody('unread', 'code.count', SUPERVISED));
      expect(status).toBe(500);
      expect(body.message).toContain(`put \`files = ${supervisord.includeDir}/*.conf\` into the section [include]`);
    } finally {
      supervisord.configure({});
    }
    const id = await under.create('unread', 'code.count');
    await bed.ask('DELETE', `/api/agent/${id}`);
  });
});

describeWith(['supervisor'], 'a supervisord with credentials', () => {
  test('supervisord refuses wrong credentials and accepts those of its configuration', async () => {
    const supervisord = await TestSupervisord.start({ tcp: true, credentials: { user: 'me', password: 'right' } });
    try {
      const env = {
        ROOKERY_SUPERVISOR_URL: `http://me:wrong@${supervisord.address}`,
        ROOKERY_SUPERVISOR_INCLUDE_DIR: supervisord.includeDir,
      };
      await using bed = await Bed.start({ 'code.py': CODE }, { env });
      const { status, body } = await bed.ask('POST', '/api/agent', bed.createBody('refused', 'code.count', SUPERVISED));
      expect(status).toBe(500);
      expect(body.message).toContain(`supervisord at http://${supervisord.address} refuses the credentials`);
      expect(JSON.stringify(body)).not.toContain('wrong');
      await bed.server.end();
      expect(bed.server.output).not.toContain('me:wrong');
      bed.server = await bed.server.next({
        env: { ...env, ROOKERY_SUPERVISOR_URL: `http://me:right@${supervisord.address}` },
      });
      const id = await bed.create('taken', 'code.count', SUPERVISED);
      expect((await bed.invoke(id)).body.data).toBe(1);
      await bed.ask('DELETE', `/api/agent/${id}`);
      await bed.server.end();
      expect(supervisord.included()).toEqual([]);
    } finally {
      await supervisord.dispose();
    }
  });
});
