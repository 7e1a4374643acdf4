import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { createGzip } from 'node:zlib';
import tar from 'tar-stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { ROOT } from '../../scripts/command.ts';
import { startNginx, type TestNginx } from '../parts/nginx.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const HOST = 'rookery.example.com';
const CODE = `
def handle(event, context):
    print(event["say"], flush=True)
    return len(event["say"])
`;
const UPLOAD_BYTES = 8 * 1024 * 1024;

interface Sent {
  readonly body?: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

describeWith(['nginx'], 'a service behind deploy/proxy/nginx.conf', () => {
  let bed: Bed;
  let nginx: TestNginx;
  let agent: string;

  beforeAll(async () => {
    bed = await Bed.start({ 'app.py': CODE }, { args: ['--set', `allowedHosts=${HOST},rookery-meta.example.com`] });
    nginx = await startNginx(bed.server.frontendUrl, bed.server.metaUrl);
    agent = await bed.create('behind', 'app.handle');
  }, 60_000);
  afterAll(async () => {
    await nginx?.[Symbol.asyncDispose]();
    await bed?.[Symbol.asyncDispose]();
  }, 60_000);

  /** Sends a request like a client of `https://rookery.example.com`. */
  async function send(method: string, path: string, { body, headers }: Sent = {}): Promise<IncomingMessage> {
    const asked = request({
      ...{ method, path, host: '127.0.0.1', port: nginx.port, servername: 'localhost', ca: nginx.ca, agent: false },
      headers: { host: HOST, 'content-type': 'application/json', ...headers },
    });
    asked.end(body);
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    return answer;
  }

  async function ask(method: string, path: string, sent: Sent = {}) {
    const answer = await send(method, path, sent);
    const content = await text(answer);
    return { status: answer.statusCode, body: content === '' ? null : JSON.parse(content) };
  }
  const invoke = (say: string, headers: Sent['headers'] = {}) =>
    ask('POST', `/api/agent/${agent}/invoke`, { body: JSON.stringify({ say }), headers });

  test('REST calls are answered', async () => {
    expect(await invoke('hello')).toMatchObject({ status: 200, body: { data: 5 } });
    const meta = await ask('GET', '/serverless/v1/functions', { headers: { host: 'rookery-meta.example.com' } });
    expect(meta).toMatchObject({ status: 200, body: { code: 0 } });
  });

  test('a POST of the dashboard passes, and a POST of another site is rejected', async () => {
    const own = { origin: `https://${HOST}`, 'sec-fetch-site': 'same-origin' };
    expect(await invoke('own', own)).toMatchObject({ status: 200 });
    expect(await invoke('foreign', { origin: 'https://evil.example' })).toMatchObject({ status: 403 });
    expect((await send('GET', '/', { headers: { accept: 'text/html' } })).statusCode).toBe(200);
  });

  test('a command over a WebSocket answers with its output', async () => {
    const command = encodeURIComponent(JSON.stringify(['sh', '-c', 'read line; echo over-$line']));
    const socket = new WebSocket(`wss://127.0.0.1:${nginx.port}/api/agent/${agent}/exec?command=${command}`, {
      ...{ ca: nginx.ca, servername: 'localhost', headers: { host: HOST, origin: `https://${HOST}` } },
    });
    let seen = '';
    socket.on('message', data => {
      seen += String(data);
    });
    await once(socket, 'open');
    socket.send(Buffer.from('tls\n'));
    await once(socket, 'close');
    expect(seen).toContain('over-tls');
  });

  test('a followed log arrives line by line', async () => {
    const answer = await send('GET', `/api/agent/${agent}/logs?follow=true&tail=0`);
    let seen = '';
    answer.on('data', chunk => {
      seen += String(chunk);
    });
    for (const say of ['first line', 'second line']) {
      await invoke(say);
      // The answer continues: text that nginx buffers would never arrive.
      await expect.poll(() => seen, { timeout: 30_000 }).toContain(say);
    }
    answer.destroy();
  });

  test('events arrive as they happen', async () => {
    const answer = await send('GET', '/api/events', { headers: { accept: 'text/event-stream' } });
    expect(answer.headers['content-type']).toContain('text/event-stream');
    let seen = '';
    answer.on('data', chunk => {
      seen += String(chunk);
    });
    await bed.create('seen', 'app.handle');
    await expect.poll(() => seen, { timeout: 30_000 }).toContain('seen');
    answer.destroy();
  });

  test('an upload of several megabytes passes', async () => {
    const pack = tar.pack();
    pack.entry({ name: 'data' }, randomBytes(UPLOAD_BYTES));
    pack.finalize();
    const chunks: Buffer[] = [];
    for await (const chunk of pack.pipe(createGzip())) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const put = await ask('PUT', `/api/code/${sha256}`, { body: bytes });
    expect(put).toMatchObject({ status: 200, body: { package: { sha256, bytes: bytes.length } } });
  });

  test('the CLI trusts the certificate with ROOKERY_CA_FILE and names that variable without it', async () => {
    const address = `https://localhost:${nginx.port}`;
    const main = join(ROOT, 'dist/main.js');
    const run = async (env: Readonly<Record<string, string>>) => {
      const child = spawn(process.execPath, [main, 'agent', 'list', '--address', address], {
        env: { PATH: process.env.PATH, HOME: bed.codeDir, ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
      return `${out}${err}`;
    };
    expect(await run({})).toMatch(/is not trusted: .* Name the file of its CA with --ca-file or ROOKERY_CA_FILE/);
    expect(await run({ ROOKERY_CA_FILE: nginx.caFile })).toContain('behind');
  });

  test('a request without TLS is redirected to the address with TLS', async () => {
    const answer = await fetch(`http://127.0.0.1:${nginx.plainPort}/x?y=1`, {
      ...{ redirect: 'manual', headers: { host: HOST } },
    });
    expect(answer.status).toBe(308);
    expect(answer.headers.get('location')).toMatch(/^https:\/\/[^/]+\/x\?y=1$/);
  });
});
