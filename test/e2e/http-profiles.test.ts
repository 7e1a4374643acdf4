import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { SERVICE_CODES } from '../../src/core/codes.ts';
import { e2bPackages } from '../e2b/environments.ts';
import { describeWith } from '../probe.ts';

const PYTHON = `
import functions_framework

seen = []

@functions_framework.http
def hello(request):
    seen.append(request.method)
    return {"name": request.get_json()["name"], "path": request.path, "seen": seen}

@functions_framework.http
def fail(request):
    return "it is broken", 418

@functions_framework.cloud_event
def on_event(event):
    print("event", event["id"], event["type"], event.data["a"], flush=True)
`;

const NODE = `
const functions = require('@google-cloud/functions-framework');
const seen = [];
functions.http('hello', (request, response) => {
  seen.push(request.method);
  response.json({ name: request.body.name, path: request.path, seen });
});
functions.cloudEvent('onEvent', event => console.log('event', event.id, event.type, event.data.a));
`;

/** An app that is busy until its fourth answer to a ping. It notes each ping in /notes, if that exists. */
const AGENTCORE = `
import os
from bedrock_agentcore import BedrockAgentCoreApp
from bedrock_agentcore.runtime.models import PingStatus

app = BedrockAgentCoreApp()
pings = 0

@app.ping
def status():
    global pings
    pings += 1
    if os.path.isdir("/notes"):
        with open("/notes/pings", "a") as notes:
            notes.write("ping\\n")
    return PingStatus.HEALTHY_BUSY if pings < 4 else PingStatus.HEALTHY

@app.entrypoint
async def invoke(payload, context):
    if payload.get("stream"):
        return parts()
    return {"payload": payload, "session": context.session_id, "pid": os.getpid(), "headers": context.request_headers}

async def parts():
    for number in range(2):
        yield {"number": number}

app.run()
`;

/** A server of the profiles \`sagemaker\` and \`cloud-run\`, which answers with the request that it got. */
const SERVER = `#!/usr/bin/env python3
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *ignored): pass
    def do_GET(self): self.answer({})
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"path": self.path, "body": json.loads(body), "service": os.environ.get("K_SERVICE"),
                     "profile": os.environ.get("ROOKERY_HTTP_PROFILE")})
    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler).serve_forever()
`;

const TEST_MS = 300_000;
const GONE_MS = 240_000;

describeWith(['e2b', 'root', 'namespaces'], 'HTTP profiles', () => {
  let served: Served;
  let directory: string;

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-profiles-'));
    cpSync(e2bPackages.codeOf('code-functions'), join(directory, 'python'), { recursive: true });
    writeFileSync(join(directory, 'python/main.py'), PYTHON);
    cpSync(e2bPackages.homeOf('node-functions'), join(directory, 'node'), { recursive: true });
    writeFileSync(join(directory, 'node/index.js'), NODE);
    for (const [name, program, mode] of [
      ['agentcore', AGENTCORE, 0o644],
      ['server', SERVER, 0o755],
    ] as const) {
      mkdirSync(join(directory, name));
      writeFileSync(join(directory, name, name === 'server' ? 'bootstrap' : 'main.py'), program, { mode });
    }
    writeFileSync(join(directory, 'agentcore/bootstrap'), '#!/bin/sh\nexec python3 -B "$ROOKERY_CODE_PATH/main.py"\n', {
      mode: 0o755,
    });
    mkdirSync(join(directory, 'notes'));
    served = await Served.start({ args: [STOP_AGENTS], readyMs: TEST_MS });
  }, TEST_MS);

  afterAll(async () => {
    await served?.remove();
    rmSync(directory, { recursive: true, force: true });
  }, TEST_MS);

  async function send(url: string, body: unknown, headers: Record<string, string> = {}) {
    const sent = { 'content-type': 'application/json', ...headers };
    const answer = await fetch(url, { method: 'POST', headers: sent, body: JSON.stringify(body) });
    return { status: answer.status, text: await answer.text() };
  }

  /** Calls a function. Repeats a call that has not run because its instance took too long to start. */
  async function call(name: string, event: unknown, headers?: Record<string, string>) {
    const endMs = Date.now() + GONE_MS;
    for (;;) {
      const answer = await send(`${served.frontendUrl}/invocations/default/default/${name}/`, event, headers);
      if (!answer.text.includes(`"code":${SERVICE_CODES.waitedTooLong.code}`) || Date.now() > endMs) return answer;
    }
  }

  async function register(name: string, httpProfile: string, fields: object) {
    const answer = await send(`${served.metaUrl}/serverless/v1/functions`, {
      ...{ name: `0@default@${name}`, kind: 'faas', runtime: 'http', httpProfile, handler: 'hello', cpu: 2000 },
      ...{ memory: 512, timeout: 240, storageType: 'local', ...fields },
    });
    return JSON.parse(answer.text) as { readonly code: number; readonly message: string };
  }

  async function logOf(name: string): Promise<string> {
    const urn = `sn:cn:yrk:default:function:0@default@${name}:$latest`;
    return await (await fetch(`${served.frontendUrl}/serverless/v1/functions/${encodeURIComponent(urn)}/logs`)).text();
  }

  const withPackages = () => ({
    codePath: join(directory, 'agentcore'),
    environment: { PYTHONPATH: '/packages' },
    rootfs: { mounts: [{ source: e2bPackages.codeOf('code-agentcore'), target: '/packages', readonly: true }] },
  });

  test.each([
    ['python', { codePath: () => join(directory, 'python') }],
    ['node', { codePath: () => join(directory, 'node') }],
  ])(
    'the functions framework of %s serves a function whose code gets no request before the call',
    async (name, code) => {
      expect(await register(name, 'functions-framework', { codePath: code.codePath() })).toMatchObject({ code: 0 });
      const first = await call(name, { name: 'you' });
      expect(JSON.parse(first.text)).toEqual({ name: 'you', path: '/', seen: ['POST'] });
      expect(first.status).toBe(200);
    },
    TEST_MS,
  );

  test(
    'an answer of the functions framework that is not 2xx is the error of the call',
    async () => {
      await register('fail', 'functions-framework', { codePath: join(directory, 'python'), handler: 'fail' });
      const failed = await call('fail', {});
      expect(failed.status).toBe(500);
      expect(JSON.parse(failed.text)).toMatchObject({ code: 4002, message: expect.stringContaining('status 418') });
    },
    TEST_MS,
  );

  test.each([
    ['python', 'on_event'],
    ['node', 'onEvent'],
  ])(
    'the functions framework of %s takes calls as CloudEvents',
    async (language, handler) => {
      const name = `events-${language}`;
      const environment = { FUNCTION_SIGNATURE_TYPE: 'cloudevent' };
      await register(name, 'functions-framework', { codePath: join(directory, language), handler, environment });
      const structured = { specversion: '1.0', id: 'one', source: '/x', type: 'x.y', data: { a: 1 } };
      const binary = { 'ce-specversion': '1.0', 'ce-id': 'two', 'ce-source': '/x', 'ce-type': 'x.z' };
      expect((await call(name, structured)).status).toBe(200);
      expect((await call(name, { a: 2 }, binary)).status).toBe(200);
      expect((await call(name, { a: 3 })).status).toBe(200);
      await expect.poll(() => logOf(name), { timeout: TEST_MS }).toMatch(/event \S+ rookery\.call 3/);
      const log = await logOf(name);
      expect(log).toContain('event one x.y 1');
      expect(log).toContain('event two x.z 2');
    },
    TEST_MS,
  );

  test(
    'a function of the profile agentcore gets the session of either header',
    async () => {
      expect(await register('agentcore', 'agentcore', withPackages())).toMatchObject({ code: 0 });
      const session = 'a-session-of-33-characters-or-more';
      const custom = { 'X-Amzn-Bedrock-AgentCore-Runtime-Custom-Word': 'passed' };
      const ours = await call('agentcore', { a: 1 }, { 'X-Instance-Session': session, ...custom });
      const theirs = await call('agentcore', { a: 1 }, { 'X-Amzn-Bedrock-AgentCore-Runtime-Session-Id': session });
      const first = JSON.parse(ours.text) as { readonly pid: number; readonly headers: object };
      expect(first).toMatchObject({ payload: { a: 1 }, session });
      expect(JSON.stringify(first.headers)).toContain('passed');
      expect(JSON.parse(theirs.text)).toMatchObject({ session, pid: first.pid });
      const stream = await call('agentcore', { stream: true }, { accept: 'text/event-stream' });
      expect(stream.text).toBe('data: {"number": 0}\n\ndata: {"number": 1}\n\ndata: [DONE]\n\n');
    },
    TEST_MS,
  );

  test(
    'an idle agent of the profile agentcore stays while its server says HealthyBusy',
    async () => {
      const { rootfs, environment } = withPackages();
      const created = await send(`${served.frontendUrl}/api/agent`, {
        ...{ namespace: 'default', name: 'busy', idle_seconds: 1, env_vars: environment },
        mounts: [
          ...rootfs.mounts,
          { source: join(directory, 'agentcore'), target: '/code', readonly: true },
          { source: join(directory, 'notes'), target: '/notes', readonly: false },
        ],
        runtime_spec: {
          ...{ runtime: 'http', httpProfile: 'agentcore', codePath: '/code', rootfs: { imageurl: 'host' } },
        },
      });
      expect(created).toMatchObject({ status: 200 });
      const { instance_id } = JSON.parse(created.text) as { readonly instance_id: string };
      const endMs = Date.now() + GONE_MS;
      while ((await fetch(`${served.frontendUrl}/api/agent/${instance_id}`)).status !== 404) {
        if (Date.now() > endMs) throw new Error(`the agent is not deleted\n${served.output}`);
        await delay(100);
      }
      // The first ping is that of the start; an agent that ended at its first idle time would have got two.
      expect(readFileSync(join(directory, 'notes/pings'), 'utf8').split('\n').length - 1).toBeGreaterThanOrEqual(4);
    },
    TEST_MS,
  );

  test.each([
    ['sagemaker', '/invocations', null],
    ['cloud-run', '/', 'cloud-run'],
  ])(
    'a server of the profile %s gets calls on %s',
    async (profile, path, service) => {
      await register(profile, profile, { codePath: join(directory, 'server') });
      const answer = await call(profile, { a: 1 });
      expect(JSON.parse(answer.text)).toEqual({ path, body: { a: 1 }, service, profile: null });
    },
    TEST_MS,
  );

  test.each([
    [
      { httpProfile: 'other' },
      'httpProfile must be one of "http", "functions-framework", "agentcore", "sagemaker", "cloud-run", got "other"',
    ],
    [
      { runtime: 'go' },
      'httpProfile is for runtime http, got "agentcore" for runtime "go": remove it, or set runtime to http',
    ],
    [
      { extendedHandler: { initializer: 'start' } },
      'httpProfile agentcore has no initializer, got "start": initialize when the server starts',
    ],
  ])('the registration of %j is refused with the reason', async (fields, message) => {
    const answer = await register('refused', 'agentcore', { codePath: join(directory, 'server'), ...fields });
    expect(answer.message).toContain(message);
  });
});
