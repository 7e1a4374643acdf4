import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { openBrowser } from '../../test/parts/browser.ts';
import { ROOT, run } from '../command.ts';
import { findInterpreters } from '../pythons.ts';
import { Served } from '../served.ts';

const SIZE = { width: 1280, height: 800 };
const SCHEMES = ['light', 'dark'] as const;
/** Duration of calls before the pictures, in milliseconds. The charts have a step of 10 s. */
const CALLING_MS = 90_000;

const HANDLER = `import time

def handle(event, context):
    context.state['calls'] = context.state.get('calls', 0) + 1
    print('question %d: %s' % (context.state['calls'], event.get('say', '')), flush=True)
    time.sleep(event.get('seconds', 0))
    return {'calls': context.state['calls']}
`;

const QUESTIONS = ['Where is my parcel?', 'Can I change the address?', 'Thank you!', 'How do I return it?'];

/**
 * Starts a service with sample work, and saves pictures of its pages to `folder`.
 * Each page is saved in light and dark, as `dashboard-light.png` and so on.
 */
export async function takeDashboardPictures(folder: string): Promise<void> {
  const code = mkdtempSync(join(tmpdir(), 'rookery-pictures-'));
  try {
    writeFileSync(join(code, 'handler.py'), HANDLER);
    cpSync(join(ROOT, 'examples/job'), join(code, 'report'), { recursive: true });
    await using server = await Served.start();
    await using browser = await openBrowser();
    await deployScene(server, code);
    await callFor(server, CALLING_MS);
    const chat = await agentNamed(server, 'support-chat');
    for (const scheme of SCHEMES) {
      await shoot(browser, `${server.frontendUrl}/#/`, scheme, join(folder, `dashboard-${scheme}.png`));
      await shoot(browser, `${server.frontendUrl}/#/agents/${chat}`, scheme, join(folder, `agent-${scheme}.png`));
    }
  } finally {
    rmSync(code, { recursive: true, force: true });
  }
}

async function deployScene(server: Served, code: string): Promise<void> {
  const python = (await findInterpreters()).at(-1)?.version;
  const agent = { code: '.', runtime: `python${python}`, handler: 'handler.handle' };
  const file = {
    agents: { 'support-chat': agent, 'code-runner': agent, 'invoice-reader': agent, translator: agent },
    functions: { 'images@resize': { ...agent, kind: 'faas', minInstances: 2 } },
    jobs: { nightly: { command: 'python main.py', code: './report', schedule: '0 3 * * *' } },
  };
  writeFileSync(join(code, 'rookery.yaml'), JSON.stringify(file, null, 2));
  await rookery(server, ['deploy', '-f', join(code, 'rookery.yaml')]);
  await rookery(server, [
    'job',
    'submit',
    '--working-dir',
    join(code, 'report'),
    '--follow',
    '--',
    'python',
    'main.py',
  ]);
}

async function callFor(server: Served, durationMs: number): Promise<void> {
  const ids = await Promise.all(['support-chat', 'code-runner', 'translator'].map(name => agentNamed(server, name)));
  const endAt = performance.now() + durationMs;
  for (let count = 0; performance.now() < endAt; count += 1) {
    const seconds = 0.01 + 0.04 * Math.abs(Math.sin(count / 40));
    const event = { say: QUESTIONS[count % QUESTIONS.length], seconds };
    await Promise.all(ids.map(id => call(`${server.frontendUrl}/api/agent/${id}/invoke`, event)));
    const urn = 'sn:cn:yrk:default:function:0@images@resize:$latest';
    await call(`${server.frontendUrl}/serverless/v1/functions/${urn}/invocations`, { say: 'image', seconds: 0.02 });
  }
}

async function call(url: string, event: object): Promise<void> {
  const response = await fetch(url, { method: 'POST', body: JSON.stringify(event) });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  await response.arrayBuffer();
}

async function agentNamed(server: Served, name: string): Promise<string> {
  return (await rookery(server, ['agent', 'list', '-q', '--name', name])).trim();
}

async function rookery(server: Served, args: readonly string[]): Promise<string> {
  const env = { ROOKERY_ADDRESS: server.frontendUrl, ROOKERY_META_ADDRESS: server.metaUrl };
  const { code, output } = await run(process.execPath, [join(ROOT, 'dist/main.js'), ...args], { capture: true, env });
  if (code !== 0) throw new Error(`rookery ${args.join(' ')} ended with ${code}:\n${output}`);
  return output;
}

async function shoot(browser: Browser, url: string, colorScheme: 'light' | 'dark', file: string): Promise<void> {
  const page = await browser.newPage({ viewport: SIZE, colorScheme });
  try {
    await page.goto(url);
    await page.locator('main h1').first().waitFor();
    await page.getByText('Reading …').first().waitFor({ state: 'detached' });
    // The charts are loaded and drawn after the text.
    await page.waitForLoadState('networkidle', { timeout: 5_000 }).catch(() => undefined);
    await page.locator('canvas').first().waitFor({ timeout: 10_000 });
    await page.screenshot({ path: file });
  } finally {
    await page.close();
  }
}
