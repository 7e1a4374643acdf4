import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Caller, refusedHandshake } from '../http/web-socket.ts';
import { Bed } from './agents.ts';

const SECRET = 'a secret that is at least 32 bytes long';
const CODE = `
import http.server, json, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *ignored): pass
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"line": self.path, "headers": dict(self.headers.items())}).encode())
def listen(event, context):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
`;

let bed: Bed;
let directory: string;
let id: string;
let port: unknown;

function token(role: string, tenant = 'acme'): Promise<string> {
  const jwt = new SignJWT({ role }).setProtectedHeader({ alg: 'HS256' }).setSubject(tenant).setExpirationTime('1h');
  return jwt.sign(Buffer.from(SECRET));
}
const as = async (role: string, tenant?: string) => ({ headers: { 'x-auth': await token(role, tenant) } });

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-roles-'));
  const secretFile = join(directory, 'secret');
  writeFileSync(secretFile, SECRET);
  const settings = ['enable_func_token_auth=true', `jwt.secretFile=${secretFile}`, `mounts.allow=${tmpdir()}`];
  const args = settings.flatMap(setting => ['--set', setting]);
  bed = await Bed.start({ 'server.py': CODE }, { args });
  const created = await bed.ask('POST', '/api/agent', bed.createBody('roles', 'server.listen'), await as('developer'));
  id = String(created.body.instance_id);
  port = (await bed.invoke(id, {}, await as('developer'))).body.data;
});
afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

const WS = () => bed.server.frontendUrl.replace('http', 'ws');

test.each([
  ['viewer', { list: 200, mkdir: 403, http: 403, exec: 403, tunnel: 403 }],
  ['user', { list: 200, mkdir: 403, http: 200, exec: 403, tunnel: 101 }],
  ['developer', { list: 200, mkdir: 200, http: 200, exec: 101, tunnel: 101 }],
])('a token of the role %s has exactly the rights of that role', async (role, wanted) => {
  const more = await as(role);
  const status = async (method: 'GET' | 'POST', path: string) => (await bed.ask(method, path, undefined, more)).status;
  const handshake = async (path: string) => {
    const url = `${WS()}${path}&token=${more.headers['x-auth']}`;
    const refused = await refusedHandshake(url).catch(() => null);
    return refused === null ? 101 : refused.status;
  };
  expect({
    list: await status('GET', `/api/agent/${id}/files/list?path=/tmp`),
    mkdir: await status('POST', `/api/agent/${id}/files/mkdir?path=/tmp/d`),
    http: await status('GET', `/serverless/v1/http/?instance=${id}&port=${port}`),
    exec: await handshake(`/api/agent/${id}/exec?command=true`),
    tunnel: await handshake(`/serverless/v1/ws?instance=${id}&port=${port}`),
  }).toEqual(wanted);
});

test('an agent of another tenant answers 404 on every route', async () => {
  const other = await as('developer', 'other');
  const gone = { status: 404, body: { message: `instance not found: ${id}` } };
  for (const path of [`/api/agent/${id}/files/list?path=/`, `/serverless/v1/http/?instance=${id}&port=${port}`]) {
    expect(await bed.ask('GET', path, undefined, other)).toMatchObject(gone);
  }
  for (const path of [`/api/agent/${id}/exec?`, `/serverless/v1/ws?instance=${id}&port=${port}`]) {
    expect(await refusedHandshake(`${WS()}${path}&token=${other.headers['x-auth']}`)).toMatchObject(gone);
  }
});

test('a token never reaches the sandbox, in any way of sending it', async () => {
  const jwt = await token('user');
  const ways = [{ 'x-auth': jwt }, { authorization: `Bearer ${jwt}` }, { cookie: `own=1; iam_token=${jwt}` }];
  for (const headers of ways) {
    const { status, body } = await bed.ask('GET', `/serverless/v1/http/?instance=${id}&port=${port}`, undefined, {
      headers,
    });
    expect(status).toBe(200);
    expect(JSON.stringify(body)).not.toContain(jwt);
  }
  const tunnel = await Caller.open(`${WS()}/serverless/v1/ws?instance=${id}&port=${port}&token=${jwt}`);
  tunnel.socket.send(Buffer.from('GET / HTTP/1.0\r\n\r\n'));
  await tunnel.closed;
  expect(Buffer.concat(tunnel.messages).toString()).not.toContain(jwt);
});

test('a request or upgrade without a token answers 401', async () => {
  expect((await bed.ask('GET', `/serverless/v1/http/?instance=${id}&port=${port}`)).status).toBe(401);
  expect(await refusedHandshake(`${WS()}/api/agent/${id}/exec`)).toMatchObject({ status: 401 });
});
