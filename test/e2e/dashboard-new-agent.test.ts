import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { complaintsOf, openBrowser, violationsOf } from '../parts/browser.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

/** Code of a program on port 8000 that returns the secret. */
const PROGRAM = `
import http.server, os, threading

class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ['KEY'].encode())

server = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()

def handler(event, context):
    if event.get('end'):
        os._exit(7)
    return os.environ['KEY'] + ' ' + os.environ['MODE']
`;
/** Directory for screenshots; undefined for none. */
const SHOTS = process.env.ROOKERY_SCREENSHOTS;

describeWith(['browser'], 'the form of a new agent', () => {
  let bed: Bed;
  let browser: Browser;

  beforeAll(async () => {
    bed = await Bed.start({ 'main.py': PROGRAM });
    browser = await openBrowser();
    expect((await bed.ask('PUT', '/api/secrets/stored', { value: 'hidden-value' })).body).toMatchObject({ code: 200 });
  });
  afterAll(async () => {
    await browser?.close();
    await bed?.[Symbol.asyncDispose]();
  });

  async function open(width = 1280, colorScheme: 'light' | 'dark' = 'light') {
    const page = await browser.newPage({ viewport: { width, height: 860 }, colorScheme });
    const complaints = complaintsOf(page);
    await page.goto(`${bed.server.frontendUrl}/#/agents/new`);
    await page.getByRole('heading', { name: 'New agent' }).waitFor();
    await page.getByLabel('Runtime').fill(bed.runtime);
    return { page, complaints, [Symbol.asyncDispose]: () => page.close() };
  }

  async function create(page: Page, name: string): Promise<string> {
    await page.getByLabel('Name', { exact: true }).fill(name);
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name: `default/${name}` }).waitFor();
    return page.url().split('/').at(-1) as string;
  }

  it('an agent of an uploaded directory has its secret and its exposed port, and restarts by its policy', async () => {
    await using opened = await open();
    const { page, complaints } = opened;
    await page.getByLabel('Directory', { exact: true }).setInputFiles(bed.codeDir);
    await page.getByText(/^Sends the directory rookery-code-\w+, 1 file\.$/).waitFor();
    await page.getByLabel('Restart policy').selectOption('always');
    await page.getByLabel('Ports', { exact: true }).fill('tcp:8000');
    await page.getByLabel('Exposed port').fill('8000');
    await page.getByLabel('Environment').fill('MODE=red');
    await page.getByLabel('Secrets').fill('KEY=stored');
    await page.getByText('More', { exact: true }).click();
    await page.getByLabel('Durable').selectOption('yes');
    await page.getByLabel('Time to live').fill('3600');
    await page.getByLabel('Labels').fill('team=blue');
    const id = await create(page, 'formed');

    expect((await bed.invoke(id)).body.data).toBe('hidden-value red');
    expect(await (await fetch(`${bed.server.frontendUrl}/default/formed/`)).text()).toBe('hidden-value');
    const { body } = await bed.ask('GET', `/api/agent/${id}`);
    expect(body.instance).toMatchObject({
      restart_policy: { policy: 'always' },
      expose: { port: 8000, access: 'token' },
      labels: { team: 'blue' },
      durable: { state_version: expect.anything() },
    });
    expect(JSON.stringify(body)).not.toContain('hidden-value');

    await bed.invoke(id, { end: true });
    await expect.poll(async () => (await bed.invoke(id)).body.data, { timeout: 30_000 }).toBe('hidden-value red');
    expect(complaints).toEqual([]);
  });

  it('an agent of an uploaded zip runs its code, and the text of the request names the uploaded package', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'rookery-zip-'));
    try {
      writeFileSync(join(dir, 'main.py'), 'def handler(event, context):\n    return "zipped"\n');
      execFileSync('python3', ['-m', 'zipfile', '-c', 'code.zip', 'main.py'], { cwd: dir });
      await using opened = await open();
      const { page } = opened;
      await page.getByLabel('Zip or tar.gz').setInputFiles(join(dir, 'code.zip'));
      await page.getByRole('button', { name: 'As YAML or JSON' }).click();
      expect(JSON.parse(await page.getByLabel('Request').inputValue())).toMatchObject({
        mounts: [{ source: expect.stringMatching(/^code:\/\/[0-9a-f]{64}$/), target: '/code' }],
      });
      await page.getByRole('button', { name: 'As YAML or JSON' }).click();
      expect((await bed.invoke(await create(page, 'zipped'))).body.data).toBe('zipped');
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  it('the form of a new agent shows each fault at its field, in light, dark and at 390 pixels', async () => {
    for (const [width, scheme] of [
      [1280, 'light'],
      [1280, 'dark'],
      [390, 'light'],
    ] as const) {
      await using opened = await open(width, scheme);
      const { page, complaints } = opened;
      const refused = async (id: string, text: string) => {
        await page.getByRole('button', { name: 'Create' }).click();
        await page.locator(`#f-${id}-fault`).getByText(text).waitFor();
      };
      await page.getByLabel('Secrets').fill('KEY');
      await refused('name', 'is required');
      await page.getByText('“KEY” must be NAME=secret').waitFor();
      await page.getByLabel('Name', { exact: true }).fill('wrong');
      await page.getByLabel('Secrets').fill('KEY=none');
      await page.getByLabel('Directory', { exact: true }).setInputFiles(bed.codeDir);
      await page.getByLabel('Path on the host').fill('/srv');
      await refused('code', 'choose an upload or a path on the host, not both');
      await page.getByLabel('Path on the host').fill('');
      await page.getByLabel('Memory').fill('');
      await refused('memory', 'must be an integer');
      await page.getByLabel('Memory').fill('128');
      await page.getByLabel('Ports', { exact: true }).fill('http');
      await refused('ports', 'must be [tcp:|udp:]<port>');
      await page.getByLabel('Ports', { exact: true }).fill('');
      await page.getByText('More', { exact: true }).click();
      await page.getByLabel('Time to live').fill('0');
      await page.getByText('More', { exact: true }).click();
      await refused('time-to-live', 'must be between 1 and');
      expect(await violationsOf(page)).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
      if (SHOTS !== undefined) {
        writeFileSync(join(SHOTS, `new-agent-${width}-${scheme}.png`), await page.screenshot({ fullPage: true }));
      }
      await page.getByLabel('Time to live').fill('');
      await refused('secrets', 'secret does not exist: none');
      expect(complaints).toEqual([]);
    }
  });
});
