import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { complaintsOf, openBrowser, violationsOf } from '../parts/browser.ts';
import { cli } from '../parts/cli.ts';
import { ForwardedPort } from '../parts/forwarded-port.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const SECRET = 'a secret that is at least 32 bytes long';
const MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';
const HANDLERS = `
import os, time

def echo(event, context):
    print(event.get('say', ''), flush=True)
    return event

def fail(event, context):
    raise ValueError('no stock')

def end(event, context):
    os._exit(7)

def slow(event, context):
    time.sleep(2)
`;
/** The longest allowed name, without a place for a line break. */
const LONG_NAME = `failed${'-and-has-a-long-name'.repeat(10)}`.slice(0, 128);
/** Directory for screenshots; undefined for none. */
const SHOTS = process.env.ROOKERY_SCREENSHOTS;

/** Waits until the page shows its data. */
async function settled(page: Page): Promise<void> {
  await page.locator('main h1').first().waitFor();
  // The checks of the machine take seconds.
  await expect.poll(() => page.getByText('Reading …').count(), { timeout: 60_000 }).toBe(0);
}

describeWith(['browser'], 'the dashboard, without authentication', () => {
  let bed: Bed;
  let browser: Browser;
  let views: Readonly<Record<string, string>>;
  let agentId: string;
  let urn: string;

  beforeAll(async () => {
    bed = await Bed.start({ 'main.py': HANDLERS }, { args: ['--set', 'jobs.maxRunning=1', '--set', 'clusters=west'] });
    browser = await openBrowser();
    agentId = await bed.create('seen', 'main.echo', {}, { env_vars: { NOTE: MARKUP } });
    await bed.invoke(agentId, { say: MARKUP });
    const failed = await bed.create(LONG_NAME, 'main.end');
    await bed.invoke(failed);
    const registered = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        name: '0@svc@seen',
        kind: 'faas',
        runtime: bed.runtime,
        cpu: 300,
        memory: 128,
        timeout: 10,
        handler: 'main.echo',
        description: MARKUP,
        storageType: 'local',
        codePath: bed.codeDir,
      },
      { meta: true },
    );
    urn = String(registered.body.functionVersionUrn);
    await bed.ask('POST', '/api/jobs/', { entrypoint: `echo '${MARKUP}'`, submission_id: 'seen' });
    const fn = `functions/${encodeURIComponent('0@svc@seen')}`;
    views = {
      overview: '',
      agents: 'agents',
      'new agent': 'agents/new',
      agent: `agents/${agentId}`,
      'call of an agent': `agents/${agentId}/call`,
      calls: 'calls',
      'calls of an agent': `agents/${agentId}/calls`,
      log: `agents/${agentId}/logs`,
      files: `agents/${agentId}/files`,
      processes: `agents/${agentId}/processes`,
      ports: `agents/${agentId}/ports`,
      'failed agent': `agents/${failed}`,
      functions: 'functions',
      'new function': 'functions/new',
      'calls of a function': `functions/${encodeURIComponent('0@svc@seen')}/calls`,
      function: fn,
      'call of a function': `${fn}/call`,
      versions: `${fn}/versions`,
      reserved: `${fn}/reserved`,
      jobs: 'jobs',
      job: 'jobs/seen',
      events: 'events',
      'cold starts': 'cold-starts',
      pools: 'pools',
      secrets: 'secrets',
      nodes: 'nodes',
      settings: 'settings',
    };
  });
  afterAll(async () => {
    await browser?.close();
    await bed?.[Symbol.asyncDispose]();
  });

  /** Opens a page at a view and collects its errors. */
  async function open(path: string, options: { readonly width?: number; readonly scheme?: 'light' | 'dark' } = {}) {
    const { width = 1280, scheme = 'light' } = options;
    const page = await browser.newPage({ viewport: { width, height: 860 }, colorScheme: scheme });
    const complaints = complaintsOf(page);
    await page.goto(`${bed.server.frontendUrl}/#/${path}`);
    await settled(page);
    return { page, complaints, [Symbol.asyncDispose]: () => page.close() };
  }

  async function go(page: Page, path: string): Promise<void> {
    await page.evaluate(`location.hash = ${JSON.stringify(`#/${path}`)}`);
    await settled(page);
  }

  it('each view of the dashboard works in light, dark and at 360 pixels, without violations of axe or the policy, or horizontal scrolling', async () => {
    for (const [name, width, scheme] of [
      ['light', 1280, 'light'],
      ['dark', 1280, 'dark'],
      ['small', 360, 'light'],
    ] as const) {
      await using opened = await open('', { width, scheme });
      const { page, complaints } = opened;
      const problems: string[] = [];
      for (const [view, path] of Object.entries(views)) {
        await go(page, path);
        problems.push(...(await violationsOf(page)).map(problem => `${view}, ${name}: ${problem}`));
        const over = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
        if (over > 0) problems.push(`${view}, ${name}: scrolls sideways by ${over} pixels`);
        if (SHOTS !== undefined) {
          mkdirSync(SHOTS, { recursive: true });
          await page.screenshot({ path: join(SHOTS, `${name}-${view.replaceAll(' ', '-')}.png`) });
        }
      }
      expect([...problems, ...complaints]).toEqual([]);
    }
  }, 400_000);

  it('shows names, logs and errors with markup as text', async () => {
    await using opened = await open(`agents/${agentId}`);
    const { page } = opened;
    await page.getByText('onerror=').first().waitFor();
    for (const path of [
      `agents/${agentId}/logs`,
      'jobs/seen',
      `functions/${encodeURIComponent('0@svc@seen')}/versions`,
    ]) {
      await go(page, path);
      await page.getByText('onerror=').first().waitFor();
    }
    expect(await page.evaluate('[typeof hacked, document.images.length].join()')).toBe('undefined,0');
  });

  it('the dashboard creates an agent from the form, calls it, follows its log, opens a terminal in it, and deletes it', async () => {
    await using opened = await open('agents/new');
    const { page, complaints } = opened;
    await page.getByLabel('Name', { exact: true }).fill('made');
    await page.getByLabel('Runtime').fill(bed.runtime);
    await page.getByLabel('Handler').fill('main.echo');
    await page.getByLabel('Path on the host').fill(bed.codeDir);
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name: 'default/made' }).waitFor();
    const id = page.url().split('/').at(-1) as string;

    await page.getByRole('link', { name: 'Call', exact: true }).click();
    await page.getByLabel('Body', { exact: true }).fill('{"say": "first words"}');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('region', { name: 'Body of the answer' }).getByText('first words').waitFor();

    await page.getByRole('link', { name: 'Log', exact: true }).click();
    const log = page.getByRole('region', { name: 'Log', exact: true });
    await log.getByText('first words').waitFor();
    await bed.invoke(id, { say: 'later words' });
    await log.getByText('later words').waitFor();
    await page.getByLabel('Search').fill('later');
    await page.getByText('1 of', { exact: false }).waitFor();

    await page.getByRole('link', { name: 'Terminal' }).click();
    await page.getByText('Terminal: connected').waitFor();
    await page.keyboard.type('echo $((6 * 7)) is the answer\n');
    await page.locator('.xterm-rows').getByText('42 is the answer').waitFor();
    // The keyboard leaves the terminal.
    await page.keyboard.press('Escape');
    await page.keyboard.press('Tab');

    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('heading', { name: 'Agents' }).waitFor();
    expect((await bed.ask('GET', `/api/agent/${id}`)).status).toBe(404);
    expect(complaints).toEqual([]);
  });

  it('the dashboard lists and kills a process of an agent, and pauses and resumes the agent', async () => {
    const id = await bed.create('worker', 'main.echo');
    const command = ['sleep', '600'];
    const { pid } = (await bed.ask('POST', `/api/agent/${id}/processes`, { command, tag: 'nap' })).body;
    await using opened = await open(`agents/${id}/processes`);
    const { page, complaints } = opened;
    const row = page.getByRole('row').filter({ hasText: 'sleep 600' });
    await row.getByText('nap').waitFor();
    await row.getByRole('button', { name: 'Kill' }).click();
    await page
      .getByRole('dialog')
      .getByText(`Kill process ${String(pid)}?`)
      .waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Kill' }).click();
    await page.getByText('No process runs in the background.').waitFor();

    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText('PAUSED', { exact: true }).waitFor();
    await page.getByText('its processes cannot be listed').waitFor();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByText('RUNNING', { exact: true }).waitFor();
    expect((await bed.invoke(id, { say: 'awake' })).status).toBe(200);
    expect(complaints).toEqual([]);
    await bed.ask('DELETE', `/api/agent/${id}`);
  });

  it('the dashboard shows a sleeping agent, finds it by its status, and wakes it', async () => {
    const id = await bed.create('sleeper', 'main.echo', {}, { durable: true });
    expect((await bed.ask('POST', `/api/agent/${id}/sleep`)).status).toBe(200);
    await using opened = await open('agents');
    const { page, complaints } = opened;
    await page.getByLabel('Status').selectOption('SLEEPING');
    await page.getByRole('link', { name: 'sleeper' }).click();
    await page.getByText('SLEEPING', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Wake' }).click();
    await page.getByText('RUNNING', { exact: true }).waitFor();
    expect(complaints).toEqual([]);
    await bed.ask('DELETE', `/api/agent/${id}`);
  });

  it('the dashboard finds a failed call, shows its input and error, and leads to its agent', async () => {
    const id = await bed.create('broken', 'main.fail');
    await bed.invoke(id, { order: 17, password: 'hidden' });
    await using opened = await open('calls');
    const { page, complaints } = opened;
    await page.getByLabel('Outcome').selectOption('error');
    await page.getByLabel('Text').fill('order');
    const row = page.getByRole('row').filter({ hasText: 'e2e/broken' });
    await row.getByText('no stock').waitFor();
    await row.getByRole('link').first().click();
    await page.getByRole('heading', { name: 'Call of e2e/broken' }).waitFor();
    await page.getByText(/^What helps: rookery call replay \S+ --code <repaired directory>$/).waitFor();
    const input = page.getByRole('region', { name: 'Input' });
    await input.getByText('17').waitFor();
    expect(await input.textContent()).not.toContain('hidden');
    await page.getByRole('link', { name: 'e2e/broken' }).click();
    await page.getByRole('heading', { name: 'e2e/broken' }).waitFor();
    await page.getByText('Its code is loaded, and it takes calls.').waitFor();
    await page.getByText(/^1 call failed in the last hour, the last one .* no stock/).waitFor();
    expect(complaints).toEqual([]);
    await bed.ask('DELETE', `/api/agent/${id}`);
  });

  it('the lists of agents and functions show calls, errors and memory, and the page of an agent charts its memory', async () => {
    const id = await bed.create('measured-badly', 'main.fail');
    await bed.invoke(await bed.create('measured-well', 'main.echo'));
    await bed.invoke(id);
    await bed.ask('POST', `/serverless/v1/functions/${urn}/invocations`, {});
    await using opened = await open('agents');
    const { page, complaints } = opened;
    const cells = async (name: string) => await page.locator('tr', { hasText: name }).locator('td').allTextContents();
    const memory = expect.stringMatching(/^\d[\d.]* of \d+ MB$/);
    await expect
      .poll(() => cells('measured-well'), { timeout: 60_000 })
      .toEqual(expect.arrayContaining(['1', '0', memory]));
    // An agent without a successful call.
    await expect
      .poll(() => cells('measured-badly'), { timeout: 60_000 })
      .toEqual(expect.arrayContaining(['1', memory]));
    expect((await cells('measured-badly')).filter(text => text === '1')).toHaveLength(2);
    await go(page, 'functions');
    await expect.poll(() => cells('svc@seen'), { timeout: 60_000 }).toEqual(expect.arrayContaining([memory]));
    await go(page, `agents/${id}`);
    await page.locator('figcaption', { hasText: 'Memory' }).getByText(/\d MB/).waitFor({ timeout: 60_000 });
    expect(complaints).toEqual([]);
  }, 200_000);

  it('dragging over a chart, or its keys, zoom all charts of the page, and new points do not undo it', async () => {
    await bed.invoke(agentId);
    await using opened = await open(`agents/${agentId}`);
    const { page, complaints } = opened;
    const charts = page.getByRole('application');
    await page.getByRole('application', { name: 'Memory' }).waitFor({ timeout: 60_000 });
    // The time in the label of each chart.
    const times = async () => {
      const labels = await charts.evaluateAll(all => all.map(chart => chart.getAttribute('aria-label') ?? ''));
      return [...new Set(labels.map(label => /, (.* to .*)\. Plus and minus/.exec(label)?.[1]))];
    };
    const isZoomed = () => page.getByRole('button', { name: 'Whole range' }).isVisible();
    const plot = charts.nth(1).locator('.u-over');
    await plot.scrollIntoViewIfNeeded();
    const box = await plot.boundingBox();
    if (box === null) throw new Error('the chart is not visible');
    // A part without the newest points: a later point may change how the line between two of them is drawn.
    await page.mouse.move(box.x + box.width * 0.1, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 40, { steps: 4 });
    await page.mouse.up();
    await expect.poll(isZoomed).toBe(true);
    const [zoomed, ...others] = await times();
    expect(others).toEqual([]);
    await page
      .getByRole('status')
      .getByText(zoomed as string)
      .waitFor();
    // Returns the pictures after the next frame.
    const pictures = async () => {
      await page.evaluate('new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))');
      return await page.evaluate<string[]>(
        "[...document.querySelectorAll('.plot canvas')].map(canvas => canvas.toDataURL())",
      );
    };
    const before = await pictures();
    const read = await page.waitForResponse(response => response.url().includes('/api/metrics/history'));
    await read.finished();
    expect(await times()).toEqual([zoomed]);
    expect(await pictures()).toEqual(before);
    await page.getByRole('button', { name: 'Whole range' }).click();
    await expect.poll(isZoomed).toBe(false);
    await expect.poll(async () => (await pictures()).some(picture => before.includes(picture))).toBe(false);
    await charts.first().focus();
    await page.keyboard.press('+');
    await expect.poll(isZoomed).toBe(true);
    const [once] = await times();
    await page.keyboard.press('ArrowRight');
    await expect.poll(times).not.toEqual([once]);
    expect(await times()).toHaveLength(1);
    await page.keyboard.press('ArrowLeft');
    await expect.poll(times).toEqual([once]);
    // Escape works without the focus, too.
    await page.evaluate('document.activeElement.blur()');
    await page.keyboard.press('Escape');
    await expect.poll(isZoomed).toBe(false);
    expect(complaints).toEqual([]);
  }, 200_000);

  it('the range of charts is that of the page before, also after a reload', async () => {
    await using opened = await open(`agents/${agentId}`);
    const { page, complaints } = opened;
    const reads = (range: string) =>
      page.waitForResponse(response => response.url().includes(`range=${range}`) && response.ok());
    const pressed = () => page.locator('.choice button[aria-pressed=true]').textContent();
    for (const [name, range] of [
      ['15 min', '15m'],
      ['24 h', '24h'],
      ['6 h', '6h'],
    ] as const) {
      const read = reads(range);
      await page.getByRole('button', { name, exact: true }).click();
      await read;
    }
    await go(page, '');
    expect(await pressed()).toBe('6 h');
    await page.getByText(/^Calls, last 2 minutes$/).waitFor();
    const again = reads('6h');
    await page.reload();
    await again;
    await settled(page);
    expect(await pressed()).toBe('6 h');
    expect(complaints).toEqual([]);
  });

  it('Ctrl-K finds pages, agents, functions and jobs by a part of their names', async () => {
    const id = await bed.create('needle', 'main.echo');
    await using opened = await open('settings');
    const { page, complaints } = opened;
    const find = async (text: string, choice: string) => {
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Search for' }).fill(text);
      await page.getByRole('option', { name: choice }).waitFor();
      await page.keyboard.press('Enter');
    };
    await find('needl', 'e2e/needle agent');
    await page.getByRole('heading', { name: 'e2e/needle' }).waitFor();
    await find(id, 'e2e/needle agent');
    await find('cold', 'Cold starts page');
    await page.getByRole('heading', { name: 'Cold starts' }).waitFor();
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByRole('combobox', { name: 'Search for' }).fill('no such thing');
    await page.getByText('Nothing has this text.').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect(complaints).toEqual([]);
    await bed.ask('DELETE', `/api/agent/${id}`);
  });

  it('the form puts the selected sandbox type into runtime_spec', async () => {
    await using opened = await open('agents/new');
    const { page } = opened;
    await page.getByText('More', { exact: true }).click();
    await page.getByLabel('Sandbox').selectOption('docker');
    await page.getByRole('button', { name: 'As YAML or JSON' }).click();
    const body = JSON.parse(await page.getByLabel('Request').inputValue());
    expect(body).toMatchObject({ runtime_spec: { sandbox_type: 'docker' } });
    expect(Object.keys(body)).not.toContain('sandbox_type');
  });

  it('the dashboard keeps very long texts in bounded boxes', async () => {
    const long = 'x'.repeat(20_000);
    const id = await bed.create('wordy', 'main.echo', {}, { env_vars: { TEXT: long, ['N'.repeat(200)]: 'short' } });
    await bed.ask('POST', '/api/jobs/', { entrypoint: `true # ${long}`, submission_id: 'wordy' });
    await using opened = await open(`agents/${id}`, { width: 360 });
    const { page } = opened;
    expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0);
    const heightOf = async (locator: Locator) => (await locator.boundingBox())?.height;
    expect(await heightOf(page.getByRole('region', { name: 'TEXT' }))).toBeLessThan(200);
    await go(page, 'jobs/wordy');
    expect(await heightOf(page.getByRole('region', { name: 'Command' }))).toBeLessThan(200);
    await go(page, 'jobs');
    expect(await page.getByRole('row', { name: 'wordy' }).textContent()).not.toContain(long);
    expect(await violationsOf(page)).toEqual([]);
  });

  it('the dashboard shows an agent whose code could not be loaded as faulty, at 390 pixels too', async () => {
    const id = await bed.create('broken', 'main.nothing');
    for (const width of [1280, 390]) {
      await using opened = await open('agents', { width });
      const { page } = opened;
      const badge = page.getByRole('row', { name: 'broken' }).locator('.status');
      expect([await badge.textContent(), await badge.getAttribute('class')]).toEqual([
        'RUNNING (code not loaded)',
        'status bad',
      ]);
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0);
      if (SHOTS !== undefined) await page.screenshot({ path: join(SHOTS, `broken-${width}.png`) });
      await go(page, `agents/${id}`);
      expect(await page.locator('main .status').first().textContent()).toBe('RUNNING (code not loaded)');
      expect(await violationsOf(page)).toEqual([]);
    }
    await bed.ask('DELETE', `/api/agent/${id}`);
  }, 60_000);

  it('the dashboard shows the warnings of a create', async () => {
    await using opened = await open('agents/new');
    const { page, complaints } = opened;
    await page.getByRole('button', { name: 'As YAML or JSON' }).click();
    const body = JSON.stringify({ ...bed.createBody('warned', 'main.echo'), no_such_field: 1 });
    await page.getByLabel('Request').fill(body);
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name: 'e2e/warned' }).waitFor();
    await page.getByRole('status').getByText('no_such_field').waitFor();
    expect(await violationsOf(page)).toEqual([]);
    await go(page, `agents/${agentId}`);
    await page.getByRole('heading', { name: 'e2e/seen' }).waitFor();
    expect(await page.getByText('no_such_field').count()).toBe(0);
    expect(complaints).toEqual([]);
  });

  it('the dashboard shows an error for an address with an invalid encoding', async () => {
    const page = await browser.newPage();
    const complaints = complaintsOf(page);
    await page.goto(`${bed.server.frontendUrl}/#/agents/%zz`);
    await page.getByText('instance not found: %zz').waitFor();
    await page.getByRole('heading', { name: '%zz' }).waitFor();
    await page.evaluate("location.hash = '#/jobs/%'");
    await page.getByRole('alert').getByText('%').waitFor();
    // A browser would normalize the path.
    const asked: string[] = [];
    page.on('request', request => asked.push(new URL(request.url()).pathname));
    for (const dots of ['..', '%2e%2e', '.']) {
      await go(page, `agents/${dots}`);
      await page
        .getByRole('alert')
        .getByText(`nothing can have the name “${decodeURIComponent(dots)}”`)
        .waitFor();
    }
    await go(page, 'jobs/');
    await page.getByRole('heading', { name: 'Jobs' }).waitFor();
    expect(asked.filter(path => ['/api/', '/api/agent/'].includes(path))).toEqual([]);
    expect(complaints).toEqual([]);
    await page.close();
  });

  it('the dashboard asks for a reload when one of its files no longer exists', async () => {
    const page = await browser.newPage();
    const complaints = complaintsOf(page);
    await page.route('**/assets/terminal-*', route => route.fulfill({ status: 404, body: 'route not found' }));
    await page.goto(`${bed.server.frontendUrl}/#/agents/${agentId}/terminal`);
    await page.getByRole('alert').getByText('Reload the page').waitFor();
    expect(complaints.filter(each => each.startsWith('uncaught'))).toEqual([]);
    await page.close();
  });

  it('the dashboard shows each event of the selected tenant once', async () => {
    const headers = { tenantId: 'acme' };
    await bed.ask('POST', '/api/agent', bed.createBody('theirs', 'main.echo'), { headers });
    await using opened = await open('events');
    const { page } = opened;
    const rows = page.getByRole('region', { name: 'Events' }).locator('tbody tr');
    await rows.first().waitFor();
    const choose = async (tenant: string) => {
      await page.getByLabel('Tenant').fill(tenant);
      await page.getByLabel('Tenant').press('Enter');
    };
    await choose('acme');
    await expect.poll(() => rows.allInnerTexts()).toHaveLength(2);
    expect(await rows.getByText('e2e/theirs').count()).toBe(2);
    await choose('default');
    await rows.getByText('e2e/seen').first().waitFor();
    expect(await page.getByText('e2e/theirs').count()).toBe(0);
    expect(await rows.getByText('e2e/seen').count()).toBe(2);
  });

  it('the dashboard reserves instances in the cluster of this installation, whatever its name', async () => {
    await using opened = await open(views.reserved as string);
    const { page } = opened;
    await page.getByLabel('Label').fill('gold');
    await page.getByLabel('At least').fill('0');
    await page.getByRole('button', { name: 'Reserve', exact: true }).click();
    await page.getByRole('cell', { name: 'west' }).waitFor();
  });

  it('the dashboard shows the failure of a button in a long list only beside its own row', async () => {
    const names = Array.from({ length: 200 }, (_, at) => `secret-${String(at).padStart(3, '0')}`);
    await Promise.all(names.map(name => bed.ask('PUT', `/api/secrets/${name}`, { value: 'x' })));
    await using opened = await open('secrets');
    const { page } = opened;
    await page.route('**/api/secrets/*', route => route.fulfill({ status: 500, body: '{"message":"no luck"}' }));
    const list = page.getByRole('region', { name: 'Secrets' });
    const row = list.locator('tbody tr').filter({ hasText: 'secret-002' });
    await row.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await row.getByText('no luck').waitFor();
    await list.evaluate(element => element.scrollTo(0, element.scrollHeight));
    await list.getByText('secret-199', { exact: true }).waitFor();
    expect(await page.getByText('no luck').count()).toBe(0);
  });

  it('the dashboard shows changes by other clients without a reload', async () => {
    await using opened = await open('agents');
    const { page } = opened;
    const id = await bed.create('elsewhere', 'main.end');
    await page.getByRole('link', { name: 'e2e/elsewhere' }).waitFor();
    await go(page, `agents/${id}`);
    await bed.invoke(id);
    await page.getByText('instance exited: exit code 7').first().waitFor();
    await page.getByRole('button', { name: 'Restart' }).click();
    await page.locator('.title').getByText('RUNNING').waitFor();
  });

  it('the dashboard continues a log after a restart of the agent, and after a restart of the service', async () => {
    const id = await bed.create('anew', 'main.echo');
    const target = Number(new URL(bed.server.frontendUrl).port);
    const way = await ForwardedPort.open('127.0.0.1', target);
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${way.port}/#/agents/${id}/logs`);
    const log = page.getByRole('region', { name: 'Log', exact: true });
    await bed.invoke(id, { say: 'before' });
    await log.getByText('before').waitFor();
    await bed.ask('POST', `/api/agent/${id}/restart`);
    await bed.invoke(id, { say: 'anew' });
    await log.getByText('anew').waitFor();
    // The page has noticed the restart, and follows the log of the new run alone.
    await page.getByText('following, 1 line').waitFor();
    // The service is unavailable.
    await way[Symbol.asyncDispose]();
    await page.getByText('ended, 1 line').waitFor();
    await page.getByText('not connected').waitFor();
    await bed.invoke(id, { say: 'while nobody saw it' });
    await using _again = await ForwardedPort.open('127.0.0.1', target, way.port);
    await log.getByText('while nobody saw it').waitFor();
    await page.close();
  });

  it('the dashboard reports a silently lost connection, and catches up when the network returns', async () => {
    const id = await bed.create('cut', 'main.echo');
    await using way = await ForwardedPort.open('127.0.0.1', Number(new URL(bed.server.frontendUrl).port));
    const page = await browser.newPage();
    await page.clock.install();
    await page.goto(`http://127.0.0.1:${way.port}/#/agents/${id}/logs`);
    const log = page.getByRole('region', { name: 'Log', exact: true });
    await bed.invoke(id, { say: 'before' });
    await log.getByText('before').waitFor();
    await page.getByText('following, 1 line').waitFor();
    const state = page.locator('.live');
    expect(await state.textContent()).toBe('live');
    way.goMute();
    await page.clock.runFor(30_000);
    expect(await state.textContent()).toBe('live');
    await page.clock.runFor(20_000);
    await page.getByText('not connected').waitFor();
    const away = page.getByRole('alert').filter({ hasText: 'The service does not answer. This page is from' });
    await away.waitFor();
    await page.getByText('ended, 1 line').waitFor();
    // The page reconnects, and its other requests in this time get no answer either.
    await page.getByRole('link', { name: 'Agents' }).click();
    await page.getByText('Reading …').waitFor();
    await page.clock.runFor(20_000);
    await bed.create('while-cut', 'main.echo');
    way.isMute = false;
    // The running attempt fails, and possibly one after it.
    await expect
      .poll(async () => {
        await page.clock.runFor(5000);
        return await state.textContent();
      })
      .toBe('live');
    await page.getByRole('link', { name: 'e2e/while-cut' }).waitFor();
    expect(await away.count()).toBe(0);
    await page.close();
  });

  it('the dashboard reconnects when it was asleep for longer than its connection can be silent', async () => {
    await using opened = await open('agents');
    const { page } = opened;
    await page.clock.install();
    await page.reload();
    await page.locator('.live.on').waitFor();
    const again = page.waitForRequest(/\/api\/events/);
    await page.clock.fastForward('08:00:00');
    await page.getByText('not connected').waitFor();
    await page.clock.runFor(5000);
    await again;
    await page.locator('.live.on').waitFor();
  });

  it('the dashboard calls a function and shows the time of each stage', async () => {
    await using opened = await open(views['call of a function'] as string);
    const { page } = opened;
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('img', { name: /queue .* ms.*run .* ms/ }).waitFor();
    await page.getByLabel('How').selectOption('stream');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('[DONE]').waitFor();
    await page.getByLabel('How').selectOption('async');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('"status": "completed"').waitFor();
    expect(urn).toContain('svc@seen');
  });

  it('the dashboard shows a form for the schema of a function, and a JSON text beside it', async () => {
    const name = '0@svc@priced';
    const properties = {
      sku: { type: 'string', description: 'The article.' },
      count: { type: 'integer', default: 1 },
      factor: { type: 'number' },
      isGift: { type: 'boolean' },
      size: { enum: ['small', 'large'] },
    };
    await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        ...{ name, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, timeout: 30, handler: 'main.echo' },
        ...{ storageType: 'local', codePath: bed.codeDir, validateInput: true },
        inputSchema: { type: 'object', properties, required: ['sku'] },
      },
      { meta: true },
    );
    await using opened = await open(`functions/${encodeURIComponent(name)}/call`, { width: 360 });
    const { page, complaints } = opened;
    const answer = (text: string) => page.getByRole('region', { name: 'Body of the answer' }).getByText(text);
    expect(await violationsOf(page)).toEqual([]);
    expect(await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
    await page.getByLabel('event.sku').fill('a "b"');
    await page.getByLabel('event.factor').fill('0.5');
    await page.getByLabel('event.isGift').selectOption('true');
    await page.getByRole('button', { name: 'Send' }).click();
    await answer('"isGift": true').waitFor();
    await page.getByLabel('Event as').selectOption('JSON');
    const sent = await page.getByLabel('Body', { exact: true }).inputValue();
    expect(JSON.parse(sent)).toEqual({ sku: 'a "b"', count: 1, factor: 0.5, isGift: true });
    await page.getByLabel('Body', { exact: true }).fill('{"sku": "c", "size": "large", "other": [2]}');
    await page.getByLabel('Event as').selectOption('form');
    expect(await page.getByLabel('event.sku').inputValue()).toBe('c');
    expect(await page.getByLabel('event.size').inputValue()).toBe('large');
    await page.getByLabel('event.factor').fill('half');
    await page.getByRole('button', { name: 'Send' }).click();
    await answer('event.factor: must be a number').waitFor();
    await page.getByLabel('event.factor').fill('');
    await page.getByRole('button', { name: 'Send' }).click();
    await answer('"other"').waitFor();
    expect(complaints).toEqual([]);
  });

  it('the form of a function has a group for each object of the schema, and shows a fault at its field', async () => {
    const name = '0@svc@shipped';
    const point = { type: 'object', properties: { lat: { type: 'number' } }, required: ['lat'] };
    const address = {
      type: 'object',
      properties: { street: { type: 'string' }, zip: { type: 'integer' }, at: { $ref: '#/$defs/point' } },
      required: ['street'],
    };
    const properties = {
      to: { $ref: '#/$defs/address', description: 'Who gets it.' },
      from: { $ref: '#/$defs/address' },
      tags: { type: 'array', items: { type: 'string', maxLength: 5 } },
      more: { type: 'object' },
    };
    await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        ...{ name, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, timeout: 30, handler: 'main.echo' },
        ...{ storageType: 'local', codePath: bed.codeDir, validateInput: true },
        inputSchema: { type: 'object', properties, required: ['to'], $defs: { address, point } },
      },
      { meta: true },
    );
    await using opened = await open(`functions/${encodeURIComponent(name)}/call`, { width: 360 });
    const { page, complaints } = opened;
    const field = (path: string) => page.getByLabel(path, { exact: true });
    const send = page.getByRole('button', { name: 'Send' });
    const answer = page.getByRole('region', { name: 'Body of the answer' });
    const form = page.locator('form');
    const answerIs = (event: object) => {
      const text = JSON.stringify(event, null, 2);
      const shown = async () => ((await answer.count()) === 1 ? await answer.textContent() : null);
      return expect.poll(shown, { timeout: 30_000 }).toBe(text);
    };
    await page.getByRole('group', { name: 'event.to', exact: true }).getByText('Who gets it.').waitFor();
    expect(await field('event.from.street').count()).toBe(0);
    // The browser sends nothing while a required field is empty.
    await send.click();
    expect(await page.locator('input:invalid').count()).toBe(1);
    expect(await answer.count()).toBe(0);

    await field('event.to.street').fill('Mill Lane 1');
    await field('event.tags').fill('new\ngift');
    await send.click();
    await answerIs({ to: { street: 'Mill Lane 1' }, tags: ['new', 'gift'] });

    await field('event.from').check();
    await field('event.from.street').fill('Harbour 2');
    await field('event.from.at').check();
    await field('event.from.at.lat').fill('north');
    await form.getByText('event.from.at.lat: must be a number').waitFor();
    expect(await violationsOf(page)).toEqual([]);
    expect(await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
    await send.click();
    await form.getByText('event.from.at.lat: must be a number, got "north"').waitFor();
    expect(await field('event.from.at.lat').getAttribute('aria-invalid')).toBe('true');
    await field('event.from.at.lat').fill('53.5');
    expect(await form.getByText('must be a number').count()).toBe(0);
    await field('event.tags').fill('new\nfragile');
    await send.click();
    await form.getByText('event.tags[1]: must have at most 5 characters, got 7').waitFor();
    await field('event.tags').fill('');
    await field('event.more').fill('{"any": [1]}');
    await field('event.to.zip').fill('20457');
    await send.click();
    const to = { street: 'Mill Lane 1', zip: 20457 };
    await answerIs({ to, from: { street: 'Harbour 2', at: { lat: 53.5 } }, more: { any: [1] } });
    await page.getByLabel('Event as').selectOption('JSON');
    const sent = await page.getByLabel('Body', { exact: true }).inputValue();
    expect(JSON.parse(sent)).toMatchObject({ from: { at: { lat: 53.5 } } });
    await page.getByLabel('Event as').selectOption('form');
    expect(await field('event.from.at.lat').inputValue()).toBe('53.5');
    await field('event.from').uncheck();
    await send.click();
    await answerIs({ to, more: { any: [1] } });
    expect(complaints).toEqual([]);
  });

  it('the dashboard publishes a version of a function, and calls it', async () => {
    await using opened = await open(views.versions as string);
    const { page, complaints } = opened;
    await page.getByLabel('New version').fill('v1');
    await page.getByLabel('Description', { exact: true }).fill('the first that lasts');
    const publish = async () => {
      await page.getByRole('button', { name: 'Publish' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Publish' }).click();
    };
    await publish();
    await page.getByRole('cell', { name: 'the first that lasts' }).waitFor();
    await page.getByLabel('Version', { exact: true }).selectOption('v1');
    await page.getByRole('link', { name: 'Call', exact: true }).click();
    await page.getByLabel('Body', { exact: true }).fill('{"of": "v1"}');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('region', { name: 'Body of the answer' }).getByText('"of": "v1"').waitFor();
    const published = await bed.ask('POST', `/serverless/v1/functions/${urn.replace('$latest', 'v1')}/invocations`, {});
    expect(published.status).toBe(200);
    // A version name that is taken is reported next to its input field.
    await page.getByRole('link', { name: 'Versions' }).click();
    await page.getByLabel('New version').fill('v1');
    await publish();
    await page.getByRole('alert').waitFor();
    expect(complaints).toEqual([]);
  });

  it('the dashboard shows the scale-up of a function without a reload, and of no other function', async () => {
    const name = '0@svc@scaled';
    await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        ...{ name, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, timeout: 30, handler: 'main.slow' },
        ...{ storageType: 'local', codePath: bed.codeDir, concurrentNum: 1, maxInstance: 2 },
      },
      { meta: true },
    );
    await using opened = await open(`functions/${encodeURIComponent(name)}`);
    const { page, complaints } = opened;
    await page.getByText('No instance runs. The next call starts one.').waitFor();
    const path = `/serverless/v1/functions/${urn.replace('seen', 'scaled')}/invocations`;
    const calls = Promise.all([bed.ask('POST', path, {}), bed.ask('POST', path, {})]);
    const instances = page.getByRole('region', { name: 'Instances' }).locator('tbody tr');
    await expect.poll(() => instances.count(), { timeout: 30_000 }).toBe(2);
    expect((await calls).map(({ status }) => status)).toEqual([200, 200]);
    await expect.poll(() => instances.getByText('ready').count(), { timeout: 30_000 }).toBe(2);
    expect(await page.getByText('svc@seen').count()).toBe(0);
    expect(complaints).toEqual([]);
  });

  it('the dashboard renders only the visible rows of a long list, and finds the others by search', async () => {
    // The service runs one job at once, and this job does not end.
    await bed.ask('POST', '/api/jobs/', { entrypoint: 'sleep 3600', submission_id: 'endless' });
    const submits = Array.from({ length: 400 }, (_, at) =>
      bed.ask('POST', '/api/jobs/', { entrypoint: 'true', submission_id: `many-${at}` }),
    );
    await Promise.all(submits);
    await using opened = await open('jobs');
    const { page } = opened;
    const rows = page.getByRole('region', { name: 'Jobs', exact: true }).locator('tbody tr');
    await rows.nth(10).waitFor();
    expect(await rows.count()).toBeLessThan(100);
    await page.getByLabel('Search').fill('many-0');
    await expect.poll(() => rows.count(), { timeout: 30_000 }).toBe(1);
    await page.getByLabel('Search').fill('');
    const list = page.getByRole('region', { name: 'Jobs', exact: true });
    await list.evaluate(element => element.scrollTo(0, element.scrollHeight));
    await page.getByRole('link', { name: 'seen', exact: true }).waitFor();
  });

  it('the dashboard shows more functions than one answer of the registry has, and all rows of a list that becomes shorter', async () => {
    const registers = Array.from({ length: 1001 }, (_, at) =>
      bed.ask(
        'POST',
        '/serverless/v1/functions',
        { name: `0@svc@${at < 200 ? 'few' : 'many'}-${at}`, runtime: bed.runtime, cpu: 300, memory: 128 },
        { meta: true, headers: { 'x-tenant-id': 'many' } },
      ),
    );
    await Promise.all(registers);
    await using opened = await open('functions');
    const { page } = opened;
    await page.getByLabel('Tenant').fill('many');
    await page.getByLabel('Tenant').press('Enter');
    await page.getByText('1001 of 1001').waitFor();
    const list = page.getByRole('region', { name: 'Functions' });
    await list.evaluate(element => element.scrollTo(0, element.scrollHeight));
    // The last row has no gap after it.
    await list.locator('tbody tr:last-child a').waitFor();
    await page.getByLabel('Search').fill('svc@few');
    // The script runs at the moment when the rows are drawn.
    const seen = await page.evaluate<number>(`(async () => {
      const count = document.querySelector('.count');
      while (count.textContent !== '200 of 1001') await new Promise(requestAnimationFrame);
      const box = document.querySelector('section.table').getBoundingClientRect();
      return [...document.querySelectorAll('section.table tbody a')].filter(link => {
        const { top, bottom } = link.getBoundingClientRect();
        return bottom > box.top && top < box.bottom;
      }).length;
    })()`);
    expect(seen).toBeGreaterThan(5);
  });

  it('the dashboard shows more pools than one answer of the registry has', async () => {
    const resources = { requests: { cpu: '500m', memory: '512Mi' }, limits: { cpu: '500m', memory: '512Mi' } };
    const pools = Array.from({ length: 1001 }, (_, at) => ({ id: `pool-${at}`, size: 0, max_size: 1, resources }));
    const created = await bed.ask('POST', '/serverless/v1/podpools', { pools }, { meta: true });
    expect(created.body).toMatchObject({ code: 0 });
    await using opened = await open('pools');
    const { page } = opened;
    await page.getByText('1001 of 1001').waitFor();
    // The oldest pool is the last in the list.
    await page.getByLabel('Search').fill('pool-0');
    await page.getByRole('cell', { name: 'pool-0', exact: true }).waitFor();
  });

  it('the keyboard alone reaches the navigation, a list, one agent and its parts', async () => {
    await using opened = await open('');
    const { page } = opened;
    const tabTo = async (name: RegExp) => {
      for (let presses = 0; presses < 60; presses++) {
        await page.keyboard.press('Tab');
        const text = await page.evaluate<string>("document.activeElement?.textContent ?? ''");
        if (name.test(text)) return;
      }
      throw new Error(`nothing that is called ${name} has the focus`);
    };
    await page.evaluate('document.activeElement?.blur()');
    await page.locator('body').press('Tab');
    await tabTo(/^Agents$/);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Agents' }).waitFor();
    await tabTo(/^e2e\/seen$/);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'e2e/seen' }).waitFor();
    await tabTo(/^Log$/);
    await page.keyboard.press('Enter');
    await page.getByRole('region', { name: 'Log', exact: true }).waitFor();
  });
});

describeWith(['browser'], 'the dashboard, with authentication', () => {
  let bed: Bed;
  let browser: Browser;
  let directory: string;

  const tokenOf = (role: string, tenant = 'acme') =>
    new SignJWT({ role })
      .setProtectedHeader({ alg: 'HS256' })
      .setSubject(tenant)
      .setExpirationTime('1h')
      .sign(Buffer.from(SECRET));

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-dashboard-'));
    writeFileSync(join(directory, 'secret'), SECRET);
    const args = ['--set', 'enable_func_token_auth=true', '--set', `jwt.secretFile=${join(directory, 'secret')}`];
    bed = await Bed.start({ 'main.py': HANDLERS }, { args });
    browser = await openBrowser();
    const runtime_spec = { runtime: bed.runtime, rootfs: { imageurl: 'any' } };
    const agent = { namespace: 'n', name: 'mine', runtime_spec };
    const headers = { 'x-auth': await tokenOf('developer') };
    await bed.ask('POST', '/api/agent', agent, { headers });
    const fn = {
      ...{ name: '0@svc@owned', kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, handler: 'main.echo' },
      ...{ storageType: 's3', s3CodePath: { bucketId: 'b', objectId: 'o', bucketUrl: '' } },
    };
    expect((await bed.ask('POST', '/serverless/v1/functions', fn, { meta: true, headers })).body).toMatchObject({
      code: 0,
    });
  });
  afterAll(async () => {
    await browser?.close();
    await bed?.[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true, force: true });
  });

  it('the dashboard requires a token, refuses a wrong one, and keeps a valid one where no script reads it', async () => {
    const page = await browser.newPage();
    await page.goto(bed.server.frontendUrl);
    await page.getByLabel('Token').fill('nonsense');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('alert').getByText('authentication failed').waitFor();
    expect(await violationsOf(page)).toEqual([]);
    await page.getByLabel('Token').fill(await tokenOf('developer'));
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    expect(await page.evaluate('document.cookie')).toBe('');
    const [cookie] = await page.context().cookies();
    expect(cookie).toMatchObject({ name: 'iam_token', httpOnly: true, sameSite: 'Strict' });
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByLabel('Token').waitFor();
    expect(await page.context().cookies()).toEqual([]);
    await page.close();
  });

  it('a page that cannot read its session says why, and asks again until the service answers', async () => {
    const page = await browser.newPage();
    let isAway = true;
    await page.route('**/api/session', route =>
      isAway ? route.fulfill({ status: 503, body: '{"message":"the service is starting"}' }) : route.continue(),
    );
    await page.goto(bed.server.frontendUrl);
    await page.getByText('the service is starting').waitFor();
    isAway = false;
    await page.getByLabel('Token').waitFor();
    await page.close();
  });

  it('the dashboard shows the current user in every tab, and nothing of the previous user', async () => {
    const context = await browser.newContext();
    const logIn = async (page: Page, token: string) => {
      await page.getByLabel('Token').fill(token);
      await page.getByRole('button', { name: 'Log in' }).click();
    };
    const [page, other] = [await context.newPage(), await context.newPage()];
    await page.goto(`${bed.server.frontendUrl}/#/agents`);
    await logIn(page, await tokenOf('developer'));
    await page.getByRole('link', { name: 'n/mine' }).waitFor();
    await other.goto(`${bed.server.frontendUrl}/#/agents`);
    await other.getByRole('button', { name: 'Log out' }).click();
    await page.getByLabel('Token').waitFor();
    await logIn(other, await tokenOf('developer', 'rival'));
    await page.locator('.who').getByText('rival').waitFor();
    await page.getByText('There is no agent yet.').waitFor();
    await context.close();
  });

  it('the dashboard requires a new token when its token is no longer valid, and then shows the same view', async () => {
    const page = await browser.newPage();
    await page.goto(`${bed.server.frontendUrl}/#/agents`);
    await page.getByLabel('Token').fill(await tokenOf('developer'));
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('link', { name: 'n/mine' }).waitFor();
    await page.context().clearCookies();
    await page.evaluate("location.hash = '#/jobs'");
    await page.getByLabel('Token').fill(await tokenOf('developer'));
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('heading', { name: 'Jobs' }).waitFor();
    await page.close();
  });

  it('the dashboard offers a viewer only the actions of that role', async () => {
    const page = await browser.newPage();
    await page.goto(`${bed.server.frontendUrl}/#/agents`);
    await page.getByLabel('Token').fill(await tokenOf('viewer'));
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('link', { name: 'n/mine' }).waitFor();
    expect(await page.getByRole('link', { name: 'New agent' }).count()).toBe(0);
    await page.getByRole('link', { name: 'n/mine' }).click();
    await page.getByRole('heading', { name: 'n/mine' }).waitFor();
    for (const name of ['Delete', 'Restart']) expect(await page.getByRole('button', { name }).count()).toBe(0);
    for (const name of ['Terminal', 'Call', 'Settings', 'Nodes']) {
      expect(await page.getByRole('link', { name, exact: true }).count()).toBe(0);
    }
    await page.evaluate("location.hash = '#/functions'");
    await page.getByRole('link', { name: '0@svc@owned' }).waitFor();
    expect(await page.getByRole('link', { name: 'New function' }).count()).toBe(0);
    for (const path of ['jobs', 'functions', 'functions/0%40svc%40owned', 'functions/0%40svc%40owned/versions']) {
      await page.evaluate(`location.hash = ${JSON.stringify(`#/${path}`)}`);
      await settled(page);
      for (const name of ['Delete', 'Submit', 'Publish', 'Remove', 'Roll back']) {
        expect(await page.getByRole('button', { name }).count(), `${name} at ${path}`).toBe(0);
      }
    }
    await page.context().clearCookies();
    await page.close();
  });

  it('a one-time link of the command line opens the dashboard once', async () => {
    const { out } = await cli(['dashboard', '--address', bed.server.frontendUrl, '--token', await tokenOf('user')]);
    const link = out.trim();
    expect(link).toMatch(/^http:\/\/localhost:\d+\/#\/login\?code=[\w-]{32}$/);
    const page = await browser.newPage();
    await page.goto(link);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    expect(page.url()).not.toContain('code=');
    await page.close();
    const other = await browser.newContext();
    const again = await other.newPage();
    await again.goto(link);
    await again.getByLabel('Token').waitFor();
    await other.close();
  });
});
