import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Served } from '../../scripts/served.ts';

const SECRET = 'a secret that is at least 32 bytes long';
const PAGE = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';
/** Limit of the script bytes sent before the first view. */
const MAX_SCRIPT_BYTES = 200_000;

interface Got {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

/** Sends a request without automatic headers and decoding. */
function ask(
  base: string,
  path: string,
  {
    method = 'GET',
    headers = {},
    body,
  }: { readonly method?: string; readonly headers?: Record<string, string>; readonly body?: object } = {},
): Promise<Got> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest(`${base}${path}`, { method, headers }, answer => {
      const chunks: Buffer[] = [];
      answer.on('data', chunk => chunks.push(chunk));
      answer.on('end', () =>
        resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: Buffer.concat(chunks) }),
      );
    });
    sent.on('error', reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

function assetsOf(html: string): string[] {
  return [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path]) => path as string);
}

describe('the files of the dashboard', () => {
  let server: Served;
  beforeAll(async () => {
    server = await Served.start();
  });
  afterAll(() => server?.remove());
  const get = (path: string, headers: Record<string, string> = {}) => ask(server.frontendUrl, path, { headers });

  it('the dashboard answers a request for a page, and the root is an unknown route for other requests', async () => {
    const page = await get('/', { accept: PAGE });
    expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    for (const accept of ['application/json', '*/*', undefined]) {
      const other = await get('/', accept === undefined ? {} : { accept });
      expect(other.status).toBe(404);
      expect(JSON.parse(other.body.toString())).toEqual({ code: 404, message: 'route not found: GET /' });
    }
    const post = await ask(server.frontendUrl, '/', { method: 'POST', headers: { accept: PAGE } });
    expect(JSON.parse(post.body.toString())).toEqual({ code: 404, message: 'route not found: POST /' });
  });

  it.each([
    '/assets/',
    '/assets/none.js',
    '/assets/../index.html',
    '/index.html',
    '/dashboard',
    '/assets/%2e%2e/main.js',
  ])('the path %s is an unknown route, also for a request for a page', async path => {
    const answer = await get(path, { accept: PAGE });
    expect([answer.status, answer.headers['content-type']]).toEqual([404, 'application/json; charset=utf-8']);
  });

  it('the files of the dashboard have a policy without inline or foreign code, and cannot be framed', async () => {
    const { headers, body } = await get('/', { accept: PAGE });
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toContain('unsafe');
    expect(headers['x-content-type-options']).toBe('nosniff');
    const html = body.toString();
    expect(html).not.toMatch(/<style|style=|<script>|\son\w+=/);
    expect(html).not.toMatch(/(src|href)="https?:/);
  });

  it('files with a hash in their name are cached permanently, and sent compressed to clients that accept it', async () => {
    const page = await get('/', { accept: PAGE });
    expect(page.headers['cache-control']).toBe('no-cache');
    for (const path of assetsOf(page.body.toString())) {
      const plain = await get(path);
      expect(plain.headers['cache-control']).toBe('public, max-age=31536000, immutable');
      expect(plain.headers.vary).toBe('Accept-Encoding');
      const brotli = await get(path, { 'accept-encoding': 'gzip, br' });
      expect([brotli.headers['content-encoding'], brotliDecompressSync(brotli.body)]).toEqual(['br', plain.body]);
      const gzip = await get(path, { 'accept-encoding': 'gzip, br;q=0' });
      expect([gzip.headers['content-encoding'], gunzipSync(gzip.body)]).toEqual(['gzip', plain.body]);
    }
  });

  it(`the first view needs less than ${MAX_SCRIPT_BYTES} bytes of script, also without compression`, async () => {
    const page = await get('/', { accept: PAGE });
    const scripts = assetsOf(page.body.toString()).filter(path => path.endsWith('.js'));
    const sizes = await Promise.all(scripts.map(async path => (await get(path)).body.length));
    expect(scripts).not.toEqual([]);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(MAX_SCRIPT_BYTES);
  });

  it('the registry is also served below /api/meta for pages of this origin', async () => {
    const answer = await get('/api/meta/serverless/v1/functions');
    expect(JSON.parse(answer.body.toString())).toMatchObject({ code: 0, result: { total: 0, functions: [] } });
    const wrong = await get('/api/meta/serverless/v1/functions/none');
    expect(JSON.parse(wrong.body.toString())).toMatchObject({ code: expect.any(Number) });
  });
});

test('no built file contains a request to another server', () => {
  const assets = join(ROOT, 'dist/dashboard/assets');
  for (const name of readdirSync(assets).filter(each => /\.(css|js)$/.test(each))) {
    expect(readFileSync(join(assets, name), 'utf8'), name).not.toMatch(/(url\(|import\(|from ?)["']?https?:/);
  }
});

describe('the login to the dashboard', () => {
  let server: Served;
  let directory: string;
  let token: string;

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-login-'));
    writeFileSync(join(directory, 'secret'), SECRET);
    token = await new SignJWT({ role: 'user' })
      .setProtectedHeader({ alg: 'HS256' })
      .setSubject('acme')
      .setExpirationTime('1h')
      .sign(Buffer.from(SECRET));
    server = await Served.start({
      args: ['--set', 'enable_func_token_auth=true', '--set', `jwt.secretFile=${join(directory, 'secret')}`],
    });
  });
  afterAll(async () => {
    await server?.remove();
    rmSync(directory, { recursive: true, force: true });
  });
  const login = (body: object, headers: Record<string, string> = {}) =>
    ask(server.frontendUrl, '/api/session', {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json', ...headers },
    });

  it('the login and the files need no token, and the root is 401 for a request that is not for a page', async () => {
    const page = await ask(server.frontendUrl, '/', { headers: { accept: PAGE } });
    expect(page.status).toBe(200);
    for (const path of assetsOf(page.body.toString())) expect((await ask(server.frontendUrl, path)).status).toBe(200);
    expect((await ask(server.frontendUrl, '/', { headers: { accept: 'application/json' } })).status).toBe(401);
    expect((await ask(server.frontendUrl, '/api/session')).status).toBe(401);
  });

  it('the login makes a cookie for a valid token that scripts cannot read and other sites do not send', async () => {
    const good = await login({ token });
    expect(JSON.parse(good.body.toString())).toMatchObject({
      authentication: true,
      tenant: 'acme',
      role: 'user',
      sees_service: false,
    });
    expect(good.headers['set-cookie']).toEqual([`iam_token=${token}; Path=/; HttpOnly; SameSite=Strict`]);
    const behindTls = await login({ token }, { 'x-forwarded-proto': 'https' });
    expect(behindTls.headers['set-cookie']).toEqual([expect.stringContaining('; Secure')]);
    const session = await ask(server.frontendUrl, '/api/session', { headers: { cookie: `iam_token=${token}` } });
    expect(JSON.parse(session.body.toString())).toMatchObject({ tenant: 'acme', role: 'user' });
    for (const wrong of [{ token: `${token}x` }, { token: 'a; Path=/' }, { code: 'none' }]) {
      const refused = await login(wrong);
      expect([refused.status, refused.headers['set-cookie']]).toEqual([401, undefined]);
    }
    for (const nonsense of [{}, { token, code: 'x' }, { token: 7 }]) expect((await login(nonsense)).status).toBe(400);
  });

  it('the login refuses a token that is too long for a cookie', async () => {
    const signed = (chars: number) =>
      new SignJWT({ role: 'user', groups: 'g'.repeat(chars) })
        .setProtectedHeader({ alg: 'HS256' })
        .setSubject('acme')
        .setExpirationTime('1h')
        .sign(Buffer.from(SECRET));
    expect((await login({ token: await signed(2900) })).status).toBe(200);
    const large = await login({ token: await signed(3000) });
    expect([large.status, large.headers['set-cookie']]).toEqual([400, undefined]);
    expect(JSON.parse(large.body.toString()).message).toMatch(
      /^the token has \d+ characters, and a browser keeps 4087/,
    );
  });

  it.each([
    ['another origin', { origin: 'http://evil.example' }],
    ['another port of this machine', { origin: 'http://127.0.0.1:1' }],
    ['a page without an origin', { origin: 'null' }],
    ['another site, as the browser says it', { 'sec-fetch-site': 'cross-site' }],
  ])('the login is closed to foreign pages: %s', async (_, headers) => {
    expect((await login({ token }, headers)).status).toBe(403);
    const out = await ask(server.frontendUrl, '/api/session', { method: 'DELETE', headers });
    expect(out.status).toBe(403);
  });

  it('a login link works once, and its code is no part of the token', async () => {
    const link = await ask(server.frontendUrl, '/api/session/links', { method: 'POST', headers: { 'x-auth': token } });
    const { code } = JSON.parse(link.body.toString()) as { code: string };
    expect(token).not.toContain(code);
    expect((await login({ code })).headers['set-cookie']).toEqual([expect.stringContaining(`iam_token=${token};`)]);
    expect((await login({ code })).status).toBe(401);
    expect((await ask(server.frontendUrl, '/api/session/links', { method: 'POST' })).status).toBe(401);
  });

  it('a tenant that metrics.tenants does not name sees no numbers, settings or findings of the service', async () => {
    for (const path of ['/api/metrics/history', '/api/settings', '/api/doctor', '/api/cluster']) {
      expect((await ask(server.frontendUrl, path, { headers: { 'x-auth': token } })).status, path).toBe(403);
    }
  });
});
