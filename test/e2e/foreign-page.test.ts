import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { openBrowser } from '../parts/browser.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

/** Code of a program on port 8000 that allows every origin; a call returns the requested paths. */
const PROGRAM = `
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

paths = []

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *ignored): pass
    def do_GET(self):
        paths.append(self.path)
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>shown</title>")
    do_POST = do_GET

def initialize(context):
    server = HTTPServer(("0.0.0.0", 8000), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

def asked(event, context):
    return paths
`;

/** JavaScript for the foreign page: sends each kind of request below `base` and returns the outcomes. */
const SEND_ALL = `base => {
  const load = (tag, url) => new Promise(resolve => {
    const element = document.createElement(tag);
    element.onload = () => resolve('loaded');
    element.onerror = () => resolve('failed');
    element.src = url;
    document.body.append(element);
  });
  const read = (url, init) => fetch(url, init).then(answer => (answer.ok ? 'read' : 'failed'), () => 'failed');
  const connect = url => new Promise(resolve => {
    const socket = new WebSocket(url.replace(/^http/, 'ws'));
    socket.onopen = () => resolve('opened');
    socket.onerror = () => resolve('failed');
  });
  return Promise.all([
    load('img', base + 'image'),
    load('script', base + 'script'),
    read(base + 'fetch', {}),
    read(base + 'post', { method: 'POST', body: 'x' }),
    read(base + 'opaque', { mode: 'no-cors' }),
    read(base + 'preflight', { headers: { 'x-own': '1' } }),
    connect(base + 'socket'),
  ]);
}`;

/** JavaScript for the foreign page: follows a link to `url`. */
const FOLLOW_LINK = `url => {
  const link = document.createElement('a');
  link.href = url;
  document.body.append(link);
  link.click();
}`;

describeWith(['browser'], 'a page of another site in a browser', () => {
  let bed: Bed;
  let browser: Browser;
  let foreign: Server;
  let id: string;
  let bases: Readonly<Record<string, string>>;
  beforeAll(async () => {
    bed = await Bed.start({ 'program.py': PROGRAM }, { args: [STOP_AGENTS] });
    browser = await openBrowser();
    foreign = createServer((_request, answer) => {
      answer.setHeader('content-type', 'text/html');
      answer.end('<title>foreign</title><body></body>');
    }).listen(0, '127.0.0.1');
    await once(foreign, 'listening');
    const more = { expose: { port: 8000, access: 'token' } };
    id = await bed.create('site', 'program.asked', { extendedHandler: { initializer: 'program.initialize' } }, more);
    const { port } = new URL(bed.server.frontendUrl);
    bases = {
      host: `http://site--e2e.localhost:${port}/`,
      path: `http://127.0.0.1:${port}/e2e/site/`,
      port: `http://127.0.0.1:${port}/serverless/v1/http/?instance=${id}&port=8000&`,
    };
  });
  afterAll(async () => {
    await browser?.close();
    foreign?.close();
    await bed?.[Symbol.asyncDispose]();
  });

  test.for(['host', 'path', 'port'])(
    'a page of another site gets no answer from an address that is not public, by %s',
    async way => {
      const page = await browser.newPage();
      await page.goto(`http://evil.localhost:${(foreign.address() as AddressInfo).port}/`);
      const results = await page.evaluate(`(${SEND_ALL})(${JSON.stringify(bases[way])})`);
      // Without CORS the page cannot tell a refusal from an answer, so the program reports its requests.
      expect(results).not.toContain('read');
      expect(results).not.toContain('opened');
      expect((await bed.invoke(id)).body.data).toEqual([]);
      await page.close();
    },
  );

  test('a page of another site reads the answers of a public address that allows every origin', async () => {
    const more = { expose: { port: 8000, access: 'public' } };
    const spec = { extendedHandler: { initializer: 'program.initialize' } };
    const open = await bed.create('open', 'program.asked', spec, more);
    const page = await browser.newPage();
    await page.goto(`http://evil.localhost:${(foreign.address() as AddressInfo).port}/`);
    const base = (bases.host as string).replace('site--', 'open--');
    expect(await page.evaluate(`(${SEND_ALL})(${JSON.stringify(base)})`)).toContain('read');
    expect((await bed.invoke(open)).body.data).toContain('/image');
    await page.close();
  });

  test('a page of another site can link to an address, which then shows the program', async () => {
    const page = await browser.newPage();
    await page.goto(`http://evil.localhost:${(foreign.address() as AddressInfo).port}/`);
    await page.evaluate(`(${FOLLOW_LINK})(${JSON.stringify(bases.host)})`);
    await page.waitForURL(bases.host as string);
    expect(await page.title()).toBe('shown');
    await page.close();
  });
});
