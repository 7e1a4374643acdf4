import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { complaintsOf, openBrowser, violationsOf } from '../parts/browser.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const HANDLERS = `
import os
def one(event, context):
    return 'one'

def two(event, context):
    return 'two'

def secret(event, context):
    return os.environ['KEY']
`;
/** Directory for screenshots; undefined for none. */
const SHOTS = process.env.ROOKERY_SCREENSHOTS;

describeWith(['browser'], 'the pages of functions', () => {
  let bed: Bed;
  let browser: Browser;

  beforeAll(async () => {
    bed = await Bed.start({ 'main.py': HANDLERS });
    browser = await openBrowser();
    for (const name of ['first', 'second']) {
      const stored = await bed.ask('PUT', `/api/secrets/${name}`, { value: 'hidden-value' });
      expect(stored.body).toMatchObject({ code: 200 });
    }
  });
  afterAll(async () => {
    await browser?.close();
    await bed?.[Symbol.asyncDispose]();
  });

  /** Sends a request to the registry, and returns the function of the answer. */
  async function registry(method: 'POST' | 'PUT', path: string, body: object): Promise<Record<string, unknown>> {
    const answer = await bed.ask(method, `/serverless/v1/functions${path}`, body, { meta: true });
    expect(answer.body).toMatchObject({ code: 0 });
    return answer.body.function as Record<string, unknown>;
  }

  /** Registers a function, publishes it as v1, and changes its latest revision. */
  async function changed(name: string): Promise<void> {
    const settings = {
      ...{ name, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, handler: 'main.one' },
      ...{ storageType: 'local', codePath: bed.codeDir, environment: { KEY: { secret: 'first' }, MODE: 'old' } },
    };
    const { revisionId } = await registry('POST', '', settings);
    await registry('POST', `/${name}/versions`, { revisionId, versionNumber: 'v1' });
    const environment = { KEY: { secret: 'second' }, MODE: 'old' };
    await registry('PUT', `/${name}`, { revisionId, handler: 'main.two', environment, expose: { port: 8080 } });
  }

  async function open(path: string, width = 1280, colorScheme: 'light' | 'dark' = 'light') {
    const page = await browser.newPage({ viewport: { width, height: 860 }, colorScheme });
    const complaints = complaintsOf(page);
    await page.goto(`${bed.server.frontendUrl}/#/${path}`);
    await page.locator('main h1').first().waitFor();
    return { page, complaints, [Symbol.asyncDispose]: () => page.close() };
  }

  async function confirm(page: Page, name: string): Promise<void> {
    await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  }

  const invoke = async (name: string) =>
    (await bed.ask('POST', `/serverless/v1/functions/sn:cn:yrk:default:function:${name}:$latest/invocations`, {})).body;

  it('the form of a new function uploads a directory, and the function runs its code with a secret', async () => {
    await using opened = await open('functions');
    const { page, complaints } = opened;
    await page.getByRole('link', { name: 'New function' }).click();
    await page.getByLabel('Name', { exact: true }).fill('svc@made');
    await page.getByLabel('Runtime').fill(bed.runtime);
    await page.getByLabel('Handler').fill('main.secret');
    await page.getByLabel('Directory').setInputFiles(bed.codeDir);
    await page.getByText(/^Sends the directory rookery-code-\w+, 1 file\.$/).waitFor();
    await page.getByLabel('Concurrency').fill('1');
    await page.getByLabel('Secrets').fill('KEY=first');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name: '0@svc@made' }).waitFor();
    expect(await invoke('0@svc@made')).toBe('hidden-value');
    const { functions } = (
      await bed.ask('GET', '/serverless/v1/functions/0@svc@made/versions', undefined, { meta: true })
    ).body as unknown as { functions: readonly object[] };
    expect(functions).toMatchObject([
      { storageType: 'package', codePath: expect.stringMatching(/^code:/), concurrentNum: 1, memory: 512 },
    ]);
    expect(complaints).toEqual([]);
  });

  it('the form of a new function uploads a zip as it is', async () => {
    const archive = join(bed.codeDir, '..', `${basename(bed.codeDir)}.zip`);
    execFileSync('python3', ['-m', 'zipfile', '-c', archive, 'main.py'], { cwd: bed.codeDir });
    try {
      await using opened = await open('functions/new');
      const { page } = opened;
      await page.getByLabel('Name', { exact: true }).fill('svc@archived');
      await page.getByLabel('Runtime').fill(bed.runtime);
      await page.getByLabel('Handler').fill('main.two');
      await page.getByLabel('Zip or tar.gz').setInputFiles(archive);
      await page.getByRole('button', { name: 'Create' }).click();
      await page.getByRole('heading', { name: '0@svc@archived' }).waitFor();
      expect(await invoke('0@svc@archived')).toBe('two');
    } finally {
      rmSync(archive);
    }
  });

  it('the form of a new function shows each fault at its field, in light, dark and at 390 pixels', async () => {
    for (const [width, scheme] of [
      [1280, 'light'],
      [1280, 'dark'],
      [390, 'light'],
    ] as const) {
      await using opened = await open('functions/new', width, scheme);
      const { page, complaints } = opened;
      await page.getByLabel('Secrets').fill('KEY');
      await page.getByRole('button', { name: 'Create' }).click();
      await page.getByText('“KEY” must be NAME=secret').waitFor();
      expect(await page.getByText('is required').count()).toBe(2);
      await page.getByLabel('Secrets').fill('KEY=none');
      await page.getByLabel('Name', { exact: true }).fill('svc@Wrong');
      await page.getByLabel('Memory').fill('1');
      await page.getByLabel('Directory').setInputFiles(bed.codeDir);
      await page.getByRole('button', { name: 'Create' }).click();
      await page.locator('#f-name-fault').getByText('must have the format 0@{service}@{funcName}').waitFor();
      await page
        .locator('#f-memory-fault')
        .getByText(/^must be between \d+ and \d+, got 1$/)
        .waitFor();
      expect(await violationsOf(page)).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
      if (SHOTS !== undefined) {
        writeFileSync(join(SHOTS, `new-function-${width}-${scheme}.png`), await page.screenshot({ fullPage: true }));
      }
      await page.getByLabel('Name', { exact: true }).fill('svc@right');
      await page.getByLabel('Memory').fill('128');
      await page.getByRole('button', { name: 'Create' }).click();
      await page.locator('#f-secrets-fault').getByText('environment.KEY: secret does not exist: none').waitFor();
      expect(complaints).toEqual([]);
    }
  });

  it('the comparison of two versions shows only what differs, and secrets by their names', async () => {
    const name = '0@svc@compared';
    await changed(name);
    for (const [width, scheme] of [
      [1280, 'light'],
      [1280, 'dark'],
      [390, 'light'],
    ] as const) {
      await using opened = await open(`functions/${encodeURIComponent(name)}/versions`, width, scheme);
      const { page, complaints } = opened;
      const differences = page.getByRole('region', { name: 'Differences' });
      await differences.waitFor();
      expect(await differences.getByRole('row').allTextContents()).toEqual([
        'Settingv1$latest',
        'handlermain.onemain.two',
        'environment.KEYsecret firstsecret second',
        'expose.port–8080',
        'expose.access–token',
      ]);
      await page.getByLabel('From').selectOption('$latest');
      await differences.getByRole('row').first().getByText('v1').waitFor();
      expect(await differences.getByRole('row').nth(1).textContent()).toBe('handlermain.twomain.one');
      expect(await page.content()).not.toContain('hidden-value');
      expect(await violationsOf(page)).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
      expect(complaints).toEqual([]);
      if (SHOTS !== undefined) {
        writeFileSync(join(SHOTS, `versions-${width}-${scheme}.png`), await page.screenshot({ fullPage: true }));
      }
    }
  });

  it('a roll back gives the latest revision the settings of a version, and shows a refusal beside its button', async () => {
    const name = '0@svc@rolled';
    await changed(name);
    expect(await invoke(name)).toBe('two');
    await using opened = await open(`functions/${encodeURIComponent(name)}/versions`);
    const { page, complaints } = opened;
    const row = page.getByRole('region', { name: 'Versions' }).getByRole('row').filter({ hasText: 'v1' });
    await row.getByRole('button', { name: 'Roll back' }).click();
    await page
      .getByRole('dialog')
      .getByText('This changes handler, environment.KEY, expose.port, expose.access.')
      .waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    expect(await invoke(name)).toBe('two');

    // Another client changes the function immediately before the page does.
    await page.route(/\/api\/meta\/.*svc(@|%40)rolled$/, async route => {
      if (route.request().method() === 'PUT') {
        const { revisionId } = route.request().postDataJSON() as { revisionId: string };
        await registry('PUT', `/${name}`, { revisionId, memory: 256 });
      }
      await route.continue();
    });
    await row.getByRole('button', { name: 'Roll back' }).click();
    await confirm(page, 'Roll back');
    await row.getByRole('alert').waitFor();
    expect(await invoke(name)).toBe('two');

    await page.unrouteAll({ behavior: 'wait' });
    await page.reload();
    await row.getByRole('button', { name: 'Roll back' }).click();
    await confirm(page, 'Roll back');
    await row.getByText('as $latest').waitFor();
    await page.getByText('Both versions have the same settings and the same code.').waitFor();
    expect(await invoke(name)).toBe('one');
    expect(complaints).toEqual([]);
  });

  it('the page of a function deletes a version after a question, and keeps the others', async () => {
    const name = '0@svc@pruned';
    await changed(name);
    await using opened = await open(`functions/${encodeURIComponent(name)}/versions`);
    const { page, complaints } = opened;
    const versions = page.getByRole('region', { name: 'Versions' });
    const row = versions.getByRole('row').filter({ hasText: 'v1' });
    await row.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByText('Delete the version v1?').waitFor();
    await confirm(page, 'Delete');
    await row.waitFor({ state: 'detached' });
    await versions.getByText('$latest').waitFor();
    expect(await invoke(name)).toBe('two');
    expect(complaints).toEqual([]);
  });
});
