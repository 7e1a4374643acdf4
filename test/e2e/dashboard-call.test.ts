import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { complaintsOf, openBrowser, violationsOf } from '../parts/browser.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const BROKEN = `
import time
def divide(event, context):
    with context.span('read', {'rows': 3, 'password': 'hidden-value'}):
        # Stages are measured with different clocks, so the line is far from both ends of the span.
        time.sleep(0.1)
        context.logger.info('read the rows')
        time.sleep(0.1)
    with context.span('divide'):
        return 10 / event['n']
`;
const REPAIRED = BROKEN.replace("10 / event['n']", "10 / event['n'] if event['n'] else 'nothing'");
const NAME = '0@svc@divide';
const SHOTS = process.env.ROOKERY_SCREENSHOTS;

describeWith(['browser'], 'the page of a call', () => {
  let bed: Bed;
  let browser: Browser;
  let urn: string;
  let revisionId: string;

  beforeAll(async () => {
    bed = await Bed.start({ 'broken.py': BROKEN, 'repaired.py': REPAIRED });
    browser = await openBrowser();
    const body = {
      ...{ name: NAME, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, storageType: 'local' },
      ...{ handler: 'broken.divide', codePath: bed.codeDir },
    };
    const registered = await bed.ask('POST', '/serverless/v1/functions', body, { meta: true });
    urn = String(registered.body.functionVersionUrn);
    revisionId = (registered.body.function as { revisionId: string }).revisionId;
  });
  afterAll(async () => {
    await browser?.close();
    await bed?.[Symbol.asyncDispose]();
  });

  const invoke = (event: object, trace: string) =>
    bed.ask('POST', `/serverless/v1/functions/${urn}/invocations`, event, { headers: { 'x-trace-id': trace } });

  it('a failed call is found, its trace and log are read, and its replay with repaired code answers 200', {
    timeout: 120_000,
  }, async () => {
    expect((await invoke({ n: 0 }, 'divide-by-zero')).status).not.toBe(200);
    const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
    const complaints = complaintsOf(page);
    await page.goto(`${bed.server.frontendUrl}/#/calls`);
    await page.getByLabel('Outcome').selectOption('error');
    const row = page.getByRole('row').filter({ hasText: NAME });
    await row.getByText('division by zero').waitFor();
    await row.getByRole('link').first().click();
    await page.getByRole('heading', { name: `Call of ${NAME}` }).waitFor();

    const trace = page.getByRole('img', { name: /run [\d.]+ ms, read [\d.]+ ms, divide [\d.]+ ms/ });
    await trace.waitFor();
    const spans = page.getByRole('region', { name: 'Attributes of spans' });
    await spans.getByText('rows=3 password=[redacted]').waitFor();
    await spans.getByText(/error: ZeroDivisionError/).waitFor();
    const log = page.getByRole('region', { name: 'Log' });
    await log.getByText(/\+\S+ ms read .* read the rows/).waitFor();
    await log.getByText(/ZeroDivisionError/).waitFor();
    expect(await page.content()).not.toContain('hidden-value');

    const update = { kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, storageType: 'local' };
    const repaired = { ...update, revisionId, handler: 'repaired.divide', codePath: bed.codeDir };
    expect((await bed.ask('PUT', `/serverless/v1/functions/${NAME}`, repaired, { meta: true })).status).toBe(200);
    await page.getByRole('button', { name: 'Replay' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Replay' }).click();
    await page.getByRole('status').filter({ hasText: '200' }).waitFor();
    await page.getByRole('region', { name: 'New answer' }).getByText('"nothing"').waitFor();
    await page
      .getByRole('region', { name: 'Recorded answer' })
      .getByText(/division by zero/)
      .waitFor();
    expect(complaints).toEqual([]);
    await page.close();
  });

  it('the address of a trace id opens the call, in light, dark and at 390 pixels', { timeout: 120_000 }, async () => {
    const id = await bed.create('divides', 'broken.divide');
    await bed.invoke(id, { n: 0 }, { headers: { 'x-trace-id': 'of-the-message' } });
    await expect
      .poll(async () => (await bed.ask('GET', '/api/calls?trace_id=of-the-message')).body.calls, { timeout: 20_000 })
      .toHaveLength(1);
    for (const [width, colorScheme] of [
      [1280, 'light'],
      [1280, 'dark'],
      [390, 'light'],
    ] as const) {
      const page = await browser.newPage({ viewport: { width, height: 860 }, colorScheme });
      const complaints = complaintsOf(page);
      await page.goto(`${bed.server.frontendUrl}/#/calls/of-the-message`);
      await page.getByRole('heading', { name: 'Call of e2e/divides' }).waitFor();
      await page
        .getByRole('region', { name: 'Log' })
        .getByText(/read the rows/)
        .waitFor();
      expect(await violationsOf(page)).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
      expect(complaints).toEqual([]);
      if (SHOTS !== undefined) {
        writeFileSync(join(SHOTS, `call-${width}-${colorScheme}.png`), await page.screenshot({ fullPage: true }));
      }
      await page.close();
    }
    const missing = await browser.newPage();
    await missing.goto(`${bed.server.frontendUrl}/#/calls/no-such-trace`);
    await missing.getByText('call not found: no-such-trace').waitFor();
    await missing.close();
  });
});
