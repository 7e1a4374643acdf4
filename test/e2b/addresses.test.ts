import { type IncomingMessage, request } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeWith } from '../probe.ts';
import { ANY_KEY, E2bService } from './e2b-service.ts';

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
}

interface Asked {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

interface Made {
  readonly sandboxID: string;
  readonly envdAccessToken: string;
  readonly domain: string | null;
  readonly templateID: string;
}

const JSON_TYPE = 'application/json';
const DOMAIN = 'sandbox.test';
/** Serves lines with the request that it got. */
const ECHO = `
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def log_message(self, *ignored): pass
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("echo " + self.path).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Echo).serve_forever()
`;

describeWith(['root', 'namespaces'], 'the E2B addresses', () => {
  let service: E2bService;
  beforeAll(async () => {
    service = await E2bService.start();
  });
  afterAll(async () => await service?.remove());

  test('A1.1 A1.7 both generations of REST routes make, connect, resume, refresh and delete', async () => {
    const body = JSON.stringify({ templateID: 'base', timeout: 60 });
    for (const prefix of ['/v2/sandboxes', '/sandboxes']) {
      const created = await rest(service, 'POST', prefix, body);
      expect(created.status).toBe(201);
      const { sandboxID, domain } = JSON.parse(created.text) as Made;
      expect(domain ?? null).toBe(null);
      const path = `/sandboxes/${sandboxID}`;
      expect((await rest(service, 'POST', `${prefix}/${sandboxID}/connect`, '{"timeout":30}')).status).toBe(200);
      expect((await rest(service, 'POST', `${path}/refreshes`, '{"duration":60}')).status).toBe(204);
      expect((await rest(service, 'POST', `${path}/timeout`, '{"timeout":60}')).status).toBe(204);
      expect((await rest(service, 'POST', `${path}/pause`)).status).toBe(204);
      expect((await rest(service, 'POST', `${path}/pause`, '{}')).status).toBe(409);
      expect((await rest(service, 'POST', `${path}/resume`, '{"timeout":30}')).status).toBe(201);
      const listed = await rest(service, 'GET', prefix);
      expect(JSON.parse(listed.text)).toEqual(expect.arrayContaining([expect.objectContaining({ sandboxID })]));
      expect((await rest(service, 'DELETE', path)).status).toBe(204);
      expect((await rest(service, 'DELETE', path)).status).toBe(404);
      expect((await rest(service, 'GET', path)).status).toBe(404);
    }
  });

  test('A1.4 A1.5 a missing, empty or malformed key is 401 with an integer code', async () => {
    for (const headers of [{}, { 'x-api-key': '' }, { 'x-api-key': 'e2b_xyz' }, { 'x-api-key': ANY_KEY.slice(1) }]) {
      const answer = await ask(service, '/e2b/v2/sandboxes', { headers });
      expect(answer.status).toBe(401);
      expect(JSON.parse(answer.text)).toEqual(
        expect.objectContaining({ code: expect.any(Number), message: expect.any(String) }),
      );
    }
  });

  test('A1.11 an early answer to a body of 64 KiB does not break the connection', async () => {
    const body = JSON.stringify({ templateID: 'base', pad: 'x'.repeat(60_000) });
    const answer = await ask(service, '/e2b/v2/sandboxes', { method: 'POST', body });
    expect(answer.status).toBe(401);
    expect((await rest(service, 'POST', '/sandboxes/0123456789abcdef0123456789abcdef/pause', body)).status).toBe(404);
  });

  test('A1.1 A1.6 A1.8 A1.9 A1.10 requests reach a sandbox by headers or token, with their path untouched', async () => {
    const made = await create(service);
    const at = (port: number) => ({ 'e2b-sandbox-id': made.sandboxID, 'e2b-sandbox-port': String(port) });
    const token = { 'x-access-token': made.envdAccessToken };
    expect((await inside(service, '/health', { headers: at(49983) })).status).toBe(204);
    expect((await inside(service, '/health', { headers: token })).status).toBe(204);
    expect((await inside(service, '/envs', { headers: token })).status).toBe(200);
    expect((await inside(service, '/envs', { headers: at(49983) })).status).toBe(401);
    for (const path of ['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze']) {
      for (const more of [{}, token]) {
        const asked = { method: 'POST', body: '{}', headers: { ...at(49983), ...more } };
        expect((await inside(service, path, asked)).status).toBe(404);
      }
    }
    const closed = await inside(service, '/', { headers: { ...at(8123), accept: JSON_TYPE } });
    expect([closed.status, JSON.parse(closed.text).message]).toEqual([
      502,
      expect.stringContaining('port is not open'),
    ]);
    await serve(service, made);
    const path = '/a%20b/%2e%2e/c?y=%2F&z';
    await expect.poll(async () => (await inside(service, path, { headers: at(8123) })).text).toBe(`echo ${path}`);

    await rest(service, 'DELETE', `/sandboxes/${made.sandboxID}`);
    for (const port of [8123, 49983]) {
      const over = await inside(service, '/health', { headers: { ...at(port), accept: JSON_TYPE } });
      expect([over.status, JSON.parse(over.text).message]).toEqual([502, expect.stringContaining('was not found')]);
    }
  });

  test('A1.9 a paused sandbox is not found at its ports until it is connected to', async () => {
    const { sandboxID } = await create(service);
    const headers = { 'e2b-sandbox-id': sandboxID, 'e2b-sandbox-port': '49983', accept: JSON_TYPE };
    await rest(service, 'POST', `/sandboxes/${sandboxID}/pause`, '{}');
    const paused = await inside(service, '/health', { headers });
    expect([paused.status, JSON.parse(paused.text).message]).toEqual([502, expect.stringContaining('was not found')]);
    expect((await rest(service, 'POST', `/v2/sandboxes/${sandboxID}/connect`, '{}')).status).toBe(201);
    expect((await inside(service, '/health', { headers })).status).toBe(204);
  });

  test('A1.2 a signed URL that matches no sandbox is 401', async () => {
    const answer = await ask(service, `/files?path=a&signature=v1_${'A'.repeat(43)}`);
    expect(answer.status).toBe(401);
  });

  test('A2.4 the pages of a list end without a token, also when the last page is full', async () => {
    const metadata = { page: `${Math.random()}` };
    const ids: string[] = [];
    for (let count = 0; count < 4; count++) ids.push((await create(service, { metadata })).sandboxID);
    const query = `metadata=${encodeURIComponent(`page=${encodeURIComponent(encodeURIComponent(metadata.page))}`)}&limit=2`;
    const first = await rest(service, 'GET', `/v2/sandboxes?${query}`);
    const token = String(first.headers['x-next-token']);
    const second = await rest(service, 'GET', `/v2/sandboxes?${query}&nextToken=${encodeURIComponent(token)}`);
    const idsOf = ({ text }: Answer) => (JSON.parse(text) as Made[]).map(({ sandboxID }) => sandboxID);
    expect([...idsOf(first), ...idsOf(second)]).toEqual(ids.toReversed());
    expect(second.headers['x-next-token'] ?? '').toBe('');
  });
});

describeWith(['root', 'namespaces'], 'the E2B host names', () => {
  let service: E2bService;
  beforeAll(async () => {
    service = await E2bService.start(['--set', `e2b.domain=${DOMAIN}`]);
  });
  afterAll(async () => await service?.remove());

  test('A1.3 a host name reaches every port and path, which no own route shadows', async () => {
    const made = await create(service);
    expect(made.domain).toBe(DOMAIN);
    const host = (port: number) => ({ host: `${port}-${made.sandboxID}.${DOMAIN}` });
    expect((await ask(service, '/health', { headers: host(49983) })).status).toBe(204);
    await serve(service, made);
    await expect.poll(async () => (await ask(service, '/', { headers: host(8123) })).text).toBe('echo /');
    for (const path of ['/api/agents', '/healthz', '/files', '/metrics', '/mcp', '/e2b/v2/sandboxes']) {
      expect((await ask(service, path, { headers: host(8123) })).text).toBe(`echo ${path}`);
    }
    const detail = await rest(service, 'GET', `/sandboxes/${made.sandboxID}`);
    expect(JSON.parse(detail.text)).toMatchObject({ domain: DOMAIN });
  });
});

/** Starts the server of port 8123 in a sandbox, through the wire of commands. */
async function serve(service: E2bService, { sandboxID, envdAccessToken }: Made): Promise<void> {
  const start = { process: { cmd: '/usr/bin/python3', args: ['-c', ECHO] }, stdin: false };
  const message = Buffer.from(JSON.stringify(start));
  const envelope = Buffer.alloc(5);
  envelope.writeUInt32BE(message.length, 1);
  const headers = {
    'content-type': 'application/connect+json',
    'connect-protocol-version': '1',
    'x-access-token': envdAccessToken,
    'e2b-sandbox-id': sandboxID,
    'e2b-sandbox-port': '49983',
  };
  // The answer ends with the process, so that only its first part is read.
  await new Promise<void>((resolve, reject) => {
    const asked = request(`${service.frontendUrl}/e2b/sandbox/process.Process/Start`, { method: 'POST', headers });
    asked.once('error', reject);
    asked.once('response', answer => {
      answer.once('data', () => {
        answer.destroy();
        resolve();
      });
    });
    asked.end(Buffer.concat([envelope, message]));
  });
}

async function create(service: E2bService, fields: object = {}): Promise<Made> {
  const body = JSON.stringify({ templateID: 'base', timeout: 120, ...fields });
  const { status, text } = await rest(service, 'POST', '/v2/sandboxes', body);
  expect(status, text).toBe(201);
  return JSON.parse(text) as Made;
}

function rest(service: E2bService, method: string, path: string, body = ''): Promise<Answer> {
  const headers = { 'x-api-key': ANY_KEY, ...(body === '' ? {} : { 'content-type': JSON_TYPE }) };
  return ask(service, `/e2b${path}`, { method, body, headers });
}

function inside(service: E2bService, path: string, asked: Asked): Promise<Answer> {
  return ask(service, `/e2b/sandbox${path}`, asked);
}

/** Sends a request whose path is not normalized. */
function ask(service: E2bService, path: string, { method = 'GET', headers, body = '' }: Asked = {}): Promise<Answer> {
  const { hostname, port } = new URL(service.frontendUrl);
  return new Promise((resolve, reject) => {
    const asked = request({ hostname, port, path, method, headers: { ...headers } }, answer => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', part => {
        text += part;
      });
      answer.once('end', () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text }));
      answer.once('error', reject);
    });
    asked.once('error', reject);
    asked.end(body);
  });
}
