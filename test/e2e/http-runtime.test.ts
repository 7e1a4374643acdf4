import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

/** Code of the user's server, whose answer the event chooses. It records its lifecycle in /notes. */
const SERVER = `
import json, os, select, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn

state = {"count": 0, "ready": time.monotonic() + float(os.environ.get("READY_AFTER", "0"))}

def note(text):
    if os.path.isdir("/notes"):
        with open("/notes/" + os.environ["ROOKERY_INSTANCE_ID"], "a") as notes:
            notes.write(text + "\\n")

class Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *ignored): pass
    def do_GET(self):
        if "HEALTH" not in os.environ: self.answer(404, b"")
        else: self.answer(200 if time.monotonic() >= state["ready"] else 503, b"")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/init":
            state["count"] = 100
            self.answer(int(os.environ.get("INIT_STATUS", "200")), b"no database")
            return
        event = json.loads(body)
        do = event.get("do", "echo")
        if do == "echo": self.answer(200, body)
        elif do == "text": self.answer(200, "caf\\u00e9".encode())
        elif do == "headers": self.answer(200, json.dumps({k.lower(): v for k, v in self.headers.items()}).encode())
        elif do == "count":
            state["count"] += 1
            self.answer(200, json.dumps(state["count"]).encode())
        elif do == "status": self.answer(event["status"], b"it is broken")
        elif do == "large": self.answer(200, b"x" * event["size"])
        elif do == "ready": self.answer(200, json.dumps(time.monotonic() >= state["ready"]).encode())
        elif do == "print":
            print("a line of the server", flush=True)
            self.answer(200, b"null")
        elif do == "aborted": self.answer(200, json.dumps(state.get("aborted", 0)).encode())
        elif do == "waiting": self.answer(200, json.dumps(state.get("waiting", 0)).encode())
        elif do == "exit": os._exit(9)
        elif do == "meet":
            state["count"] += 1
            while state["count"] < event["n"]: time.sleep(0.005)
            self.answer(200, b"true")
        elif do == "hang":
            note("waits")
            state["waiting"] = state.get("waiting", 0) + 1
            select.select([self.connection], [], [])
            state["aborted"] = state.get("aborted", 0) + 1
            note("aborted")
        elif do == "stream":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in event["parts"]: self.chunk(("data: %s\\n\\n" % part).encode())
            self.chunk(b"")
    def chunk(self, data):
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))
        self.wfile.flush()
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def on_term(*ignored):
    note("terminated")
    os._exit(0)

signal.signal(signal.SIGTERM, on_term)
Server(("127.0.0.1", 8000), Handler).serve_forever()
`;

const POLL = { timeout: 30_000, interval: 5 };
const HTTP = { runtime: 'http' };

let bed: Bed;
let notes: string;

beforeAll(async () => {
  bed = await Bed.start({ 'server.py': SERVER }, { env: { ROOKERY_CREATE_TIMEOUT_MS: '20000' } });
  bootstrap('', 'exec python3 "$(dirname "$0")/server.py"');
  bootstrap('ends', 'exit 3');
  bootstrap('sleeps', 'exec sleep 1000');
  mkdirSync(join(bed.codeDir, 'empty'));
  writeFileSync(join(bed.codeDir, 'empty', 'readme'), '');
  notes = join(bed.codeDir, 'notes');
  mkdirSync(notes);
});
afterAll(() => bed[Symbol.asyncDispose]());

function bootstrap(directory: string, source: string): void {
  mkdirSync(join(bed.codeDir, directory), { recursive: true });
  const path = join(bed.codeDir, directory, 'bootstrap');
  writeFileSync(path, `#!/bin/sh\n${source}\n`);
  chmodSync(path, 0o755);
}

function create(name: string, spec: Readonly<Record<string, unknown>> = {}, env: object = {}): Promise<string> {
  const mounts = [
    { source: bed.codeDir, target: '/code', readonly: true },
    { source: notes, target: '/notes', readonly: false },
  ];
  return bed.create(name, '', { ...HTTP, ...spec }, { mounts, env_vars: env });
}

async function refusal(name: string, spec: Readonly<Record<string, unknown>>, env: object = {}): Promise<unknown> {
  const body = bed.createBody(name, '', { ...HTTP, ...spec }, { env_vars: env });
  const answer = await bed.ask('POST', '/api/agent', body);
  expect(answer.status).toBe(500);
  return answer.body.message;
}

const sandboxes = () => readdirSync(join(bed.server.dataDir, 'run', 'instances'));
const remove = (id: string) => bed.ask('DELETE', `/api/agent/${id}`);
const noteOf = (id: string) => (existsSync(join(notes, id)) ? readFileSync(join(notes, id), 'utf8') : '');

describeWith(['root', 'namespaces'], 'a server that speaks HTTP', () => {
  test('a JSON answer is the value, another text is a string, an empty one is null', async () => {
    const id = await create('values');
    const event = { a: [1, 'é', null], do: 'echo' };
    expect(await bed.invoke(id, event)).toMatchObject({ status: 200, body: { code: 200, data: event } });
    expect((await bed.invoke(id, { do: 'text' })).body.data).toBe('café');
    expect((await bed.invoke(id, { do: 'status', status: 204 })).status).toBe(200);
    await remove(id);
  });

  test('a server gets the trace of the call', async () => {
    const id = await create('trace');
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const { body } = await bed.invoke(id, { do: 'headers' }, { headers: { 'x-trace-id': 'my-trace', traceparent } });
    expect(body.data).toMatchObject({
      'content-type': 'application/json',
      'x-trace-id': 'my-trace',
      'x-instance-id': id,
      traceparent: expect.stringMatching(/^00-0af7651916cd43dd8448eb211c80319c-/),
    });
    await remove(id);
  });

  test('a status that is not 2xx is an error of the code, with status and the start of the body', async () => {
    const id = await create('broken');
    expect(await bed.invoke(id, { do: 'status', status: 503 })).toMatchObject({
      status: 500,
      body: {
        message:
          'invoke failed: code=4002 err=Fail to run user call handler. err: HttpFailure: status 503: it is broken.',
      },
    });
    expect((await bed.invoke(id, { still: 'here' })).body.data).toEqual({ still: 'here' });
    await remove(id);
  });

  test('an answer above the limit is 4004, and the next call works', async () => {
    const id = await create('large');
    const { body } = await bed.invoke(id, { do: 'large', size: 7_000_000 });
    expect(body.message).toContain('code=4004 err=response body size 7000000 exceeds the limit of 6291456');
    expect((await bed.invoke(id, { do: 'text' })).body.data).toBe('café');
    await remove(id);
  });

  test('POST /init runs once before the first call; its failure is 4201', async () => {
    const id = await create('init', { extendedHandler: { initializer: 'any' } });
    expect((await bed.invoke(id, { do: 'count' })).body.data).toBe(101);
    expect((await bed.invoke(id, { do: 'count' })).body.data).toBe(102);
    await remove(id);
    const failed = await create('init-fails', { extendedHandler: { initializer: 'any' } }, { INIT_STATUS: '500' });
    expect((await bed.invoke(failed)).body.message).toContain(
      'code=4201 err=initializer failed: HttpFailure: status 500: no database',
    );
    await remove(failed);
  });

  test('a server with /healthz gets its first call only after /healthz answers 200', async () => {
    const id = await create('healthy', {}, { HEALTH: '1', READY_AFTER: '0.5' });
    expect((await bed.invoke(id, { do: 'ready' })).body.data).toBe(true);
    await remove(id);
  });

  test('two HTTP servers in sandboxes both listen on port 8000', async () => {
    const [one, two] = await Promise.all([create('one'), create('two')]);
    expect((await bed.invoke(one, { do: 'count' })).body.data).toBe(1);
    expect((await bed.invoke(two, { do: 'count' })).body.data).toBe(1);
    await Promise.all([remove(one), remove(two)]);
  });

  test('a client that disconnects aborts the request to the server', async () => {
    const id = await create('abort');
    const leaving = new AbortController();
    const call = bed.invoke(id, { do: 'hang' }, { signal: leaving.signal });
    call.catch(() => undefined);
    await expect.poll(() => noteOf(id), POLL).toContain('waits');
    leaving.abort();
    await expect(call).rejects.toThrow();
    await expect.poll(() => noteOf(id), POLL).toContain('aborted');
    expect((await bed.invoke(id, { do: 'text' })).body.data).toBe('café');
    await remove(id);
  });

  test('a server’s output is the log, and SIGTERM runs its pre_stop', async () => {
    const id = await create('output');
    await bed.invoke(id, { do: 'print' });
    const logs = async () => await (await fetch(`${bed.server.frontendUrl}/api/agent/${id}/logs?tail=10`)).text();
    // The output of the server does not arrive with its answer.
    await expect.poll(logs).toContain('a line of the server');
    await remove(id);
    expect(noteOf(id)).toContain('terminated');
  });

  test('a server that exits ends its instance, and the call fails', async () => {
    const id = await create('exit');
    const { status } = await bed.invoke(id, { do: 'exit' });
    expect(status).toBeGreaterThanOrEqual(500);
    await remove(id);
  });

  test('an HTTP server continues to serve after kill -9 of the Rookery server', async () => {
    const id = await create('adopted');
    expect((await bed.invoke(id, { do: 'count' })).body.data).toBe(1);
    await bed.killAndRestart();
    expect((await bed.invoke(id, { do: 'count' })).body.data).toBe(2);
    await remove(id);
  });
});

// Without its own network such a program would share port 8000 with all other programs of the machine.
describeWith(['root', 'namespaces', 'networks'], 'a program that serves HTTP', () => {
  test.each(['posix-custom-runtime', 'crystal'])(
    'a program of %s without the protocol serves as an HTTP server, gets its handler, and its exit ends the instance',
    async runtime => {
      const id = await create(`program-${runtime}`, { runtime, handler: 'bootstrap' });
      expect((await bed.invoke(id, { do: 'headers' })).body.data).toMatchObject({ 'x-rookery-handler': 'bootstrap' });
      expect((await bed.invoke(id, { do: 'exit' })).body.message).toBe('invoke failed: instance exited: exit code 9');
      await remove(id);
    },
  );
});

describeWith(['root', 'namespaces'], 'a function of runtime http', () => {
  const url = () =>
    `${bed.server.frontendUrl}/serverless/v1/functions/sn:cn:yrk:default:function:0@e2e@web:$latest/invocations`;
  const post = (event: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    fetch(url(), {
      ...(signal ? { signal } : {}),
      method: 'POST',
      body: JSON.stringify(event),
      headers: { 'content-type': 'application/json', ...headers },
    });

  beforeAll(async () => {
    const body = {
      ...{ name: '0@e2e@web', kind: 'faas', runtime: 'http', cpu: 500, memory: 256, handler: 'any' },
      ...{ storageType: 'local', codePath: bed.codeDir, concurrentNum: 3, maxInstance: 1 },
    };
    expect((await bed.ask('POST', '/serverless/v1/functions', body, { meta: true })).body).toMatchObject({ code: 0 });
  });

  test('a server runs as many calls at once as its concurrency', async () => {
    const calls = await Promise.all([1, 2, 3].map(() => post({ do: 'meet', n: 3 })));
    expect(await Promise.all(calls.map(call => call.text()))).toEqual(['true', 'true', 'true']);
  });

  test('a client that disconnects aborts its own request only', async () => {
    const leaving = new AbortController();
    const call = post({ do: 'hang' }, {}, leaving.signal);
    call.catch(() => undefined);
    await expect.poll(async () => (await post({ do: 'waiting' })).json(), POLL).toBe(1);
    leaving.abort();
    await expect.poll(async () => (await post({ do: 'aborted' })).json(), POLL).toBe(1);
  });

  test('the events of a server’s event stream become events of the call, or one text without a stream', async () => {
    const event = { do: 'stream', parts: ['one', 'two'] };
    const streamed = await post(event, { accept: 'text/event-stream' });
    expect(await streamed.text()).toBe('data: one\n\ndata: two\n\ndata: [DONE]\n\n');
    expect(await (await post(event)).json()).toBe('data: one\n\ndata: two\n\n');
  });
});

describeWith(['root', 'namespaces'], 'a bootstrap that does not serve', () => {
  test('a bootstrap that exits fails the create with its exit code', async () => {
    const before = sandboxes();
    expect(await refusal('ends', { codePath: '/code/ends' })).toBe(
      'failed to create agent: the runtime refused the connection: bootstrap ended with exit code 3 before it served: nothing listens on 127.0.0.1:8000',
    );
    expect(sandboxes().filter(id => !before.includes(id))).toEqual([]);
  });

  test('the error of a bootstrap has its last output lines without values of secrets', async () => {
    bootstrap('says', 'echo "line one"; echo "no database at $URL" >&2; exit 1');
    expect((await bed.ask('PUT', '/api/secrets/url', { value: 'postgres://hunter2' })).status).toBe(200);
    const { status, body } = await bed.ask(
      'POST',
      '/api/agent',
      bed.createBody('says', '', { ...HTTP, codePath: '/code/says' }, { env_vars: { URL: { secret: 'url' } } }),
    );
    expect({ status, message: body.message }).toEqual({
      status: 500,
      message: expect.stringMatching(
        /^failed to create agent: the runtime refused the connection: bootstrap ended with exit code 1 before it served: .*; it printed last: line one \| no database at \*\*\*$/,
      ),
    });
  });

  test('a bootstrap that never listens fails the create when its time is over', async () => {
    const before = sandboxes();
    expect(await refusal('sleeps', { codePath: '/code/sleeps' }, { HTTP_START_SECONDS: '0.5' })).toBe(
      'failed to create agent: the runtime refused the connection: bootstrap did not serve within 0.5 s: nothing listens on 127.0.0.1:8000',
    );
    expect(sandboxes().filter(id => !before.includes(id))).toEqual([]);
  });

  test('a code directory without a bootstrap is refused with the missing path', async () => {
    expect(await refusal('none', { codePath: '/code/missing' })).toMatch(
      /deploy dir is empty: \/code\/missing does not exist/,
    );
    expect(await refusal('no-bootstrap', { codePath: '/code/empty' })).toMatch(
      /^failed to create agent: there is no program \/code\/empty\/bootstrap; runtime http starts this executable file/,
    );
  });
});
