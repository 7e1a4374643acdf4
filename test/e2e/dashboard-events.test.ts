import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { complaintsOf, openBrowser, violationsOf } from '../parts/browser.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const HANDLERS = `
import os

def echo(event, context):
    return event

def end(event, context):
    os._exit(7)
`;
/** Pauses of another agent: twice as many events, which are more than the page reads of the whole tenant. */
const PAUSES = 52;
const DAY_MS = 24 * 60 * 60_000;

describeWith(['browser'], 'the events of the dashboard', () => {
  let bed: Bed;
  let browser: Browser;
  /** An agent that failed before the events of another agent. */
  let failedId: string;

  beforeAll(async () => {
    bed = await Bed.start({ 'main.py': HANDLERS });
    browser = await openBrowser();
    failedId = await bed.create('failed', 'main.end');
    await bed.invoke(failedId);
    const other = await bed.create('other', 'main.echo');
    for (let count = 0; count < PAUSES; count++) {
      await bed.ask('POST', `/api/agent/${other}/pause`);
      await bed.ask('POST', `/api/agent/${other}/resume`);
    }
  }, 240_000);
  afterAll(async () => {
    await browser?.close();
    await bed?.[Symbol.asyncDispose]();
  });

  async function open(path: string, prepare: (page: Page) => Promise<void> = async () => {}) {
    const page = await browser.newPage();
    const complaints = complaintsOf(page);
    await prepare(page);
    await page.goto(`${bed.server.frontendUrl}/#/${path}`);
    const rows = page.getByRole('region', { name: 'Events' }).locator('tbody tr');
    await rows.first().waitFor();
    return { page, complaints, rows, [Symbol.asyncDispose]: () => page.close() };
  }

  const addressOf = (page: Page) => page.evaluate<string>('location.hash');

  it('the page of an agent shows all its events, also after many of others, and continues live', async () => {
    await using opened = await open(`agents/${failedId}`);
    const { page, complaints, rows } = opened;
    const kinds = () => rows.locator('.status').allTextContents();
    expect(await kinds()).toEqual(['failed', 'ready', 'created']);
    await rows.getByText('exit code 7').waitFor();
    await bed.ask('POST', `/api/agent/${failedId}/restart`);
    await expect.poll(kinds).toEqual(['ready', 'restarting', 'failed', 'ready', 'created']);

    await page.getByRole('link', { name: 'All events of this agent' }).click();
    await page.getByRole('heading', { name: 'Events' }).waitFor();
    expect(await addressOf(page)).toBe(`#/events?agent=${failedId}`);
    await expect.poll(kinds).toEqual(['ready', 'restarting', 'failed', 'ready', 'created']);
    expect(await violationsOf(page)).toEqual([]);
    await page.getByRole('button', { name: 'Show all events' }).click();
    await rows.getByText('e2e/other').first().waitFor();
    expect(await addressOf(page)).toBe('#/events');
    expect(complaints).toEqual([]);
  });

  it('the address of the page of events has its filters, and a reload keeps them', async () => {
    await using opened = await open('events');
    const { page, complaints, rows } = opened;
    await page.getByLabel('Search').pressSequentially('e2e/failed');
    await page.getByLabel('Kind').selectOption('failed');
    await page.getByLabel('Severity').selectOption('error');
    await page.getByRole('button', { name: '15 minutes' }).click();
    await expect.poll(() => rows.allTextContents()).toEqual([expect.stringContaining('exit code 7')]);
    expect(await addressOf(page)).toBe('#/events?kind=failed&severity=error&text=e2e%2Ffailed&range=15m');
    await page.reload();
    await expect.poll(() => rows.allTextContents()).toEqual([expect.stringContaining('exit code 7')]);
    expect(await page.getByLabel('Search').inputValue()).toBe('e2e/failed');
    expect(await page.getByRole('button', { name: '15 minutes' }).getAttribute('aria-pressed')).toBe('true');
    await page.getByLabel('Severity').selectOption('info');
    await page.getByText('No matching events.').waitFor();
    await page.getByRole('link', { name: 'Events', exact: true }).click();
    await rows.getByText('e2e/other').first().waitFor();
    expect(await page.getByLabel('Search').inputValue()).toBe('');
    expect(complaints).toEqual([]);
  });

  it('the page of events shows those between two dates', async () => {
    await using opened = await open('events');
    const { page, complaints, rows } = opened;
    await page.getByRole('button', { name: 'From … to' }).click();
    await page.getByLabel('To', { exact: true }).fill('2020-01-31T12:00');
    await page.getByText('No matching events.').waitFor();
    expect(await addressOf(page)).toMatch(/^#\/events\?range=dates&to=2020-0[12]-[30]1T\d\d%3A\d\dZ$/);
    await page.getByLabel('To', { exact: true }).fill('');
    await page.getByLabel('From', { exact: true }).fill('2020-01-31T12:00');
    await rows.getByText('e2e/other').first().waitFor();
    expect(await violationsOf(page)).toEqual([]);
    expect(complaints).toEqual([]);
  });

  it('the page of events has the date above the events of another day', async () => {
    const tomorrow = (page: Page) => page.clock.setFixedTime(Date.now() + DAY_MS);
    await using opened = await open(`events?agent=${failedId}`, tomorrow);
    const { page, rows } = opened;
    await rows
      .first()
      .getByText(/^[A-Z]\w+day, \d{4}-\d\d-\d\d$/)
      .waitFor();
    expect(await rows.nth(1).textContent()).toMatch(/^\d\d:\d\d:\d\d/);
    expect(await violationsOf(page)).toEqual([]);
  });

  it('the event of an alarm that failed names the alarm', async () => {
    const id = await bed.create('durable', 'main.echo', {}, { durable: true });
    await bed.ask('PUT', `/api/agent/${id}/alarms/nightly`, { at: '2020-01-31T12:00:00Z', max_late_seconds: 1 });
    await using opened = await open(`events?agent=${id}&kind=alarm_failed`);
    await opened.rows.getByText('e2e/durable, alarm nightly').waitFor();
    await opened.rows.getByText('more than its max_late_seconds').waitFor();
    await bed.ask('DELETE', `/api/agent/${id}`);
  });

  it('the pages of a function and of a job show their own events', async () => {
    const registered = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        ...{ name: '0@svc@told', kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, timeout: 10 },
        ...{ handler: 'main.echo', storageType: 'local', codePath: bed.codeDir },
      },
      { meta: true },
    );
    const urn = String(registered.body.functionVersionUrn);
    await bed.ask('POST', `/serverless/v1/functions/${encodeURIComponent(urn)}/invocations`, {});
    await bed.ask('POST', '/api/jobs/', { entrypoint: 'exit 3', submission_id: 'told' });
    await using ofFunction = await open('functions/0@svc@told');
    await ofFunction.rows.getByText('0@svc@told 1 of 1 ready').waitFor();
    const kinds = () => ofFunction.rows.locator('.status').allTextContents();
    await expect.poll(kinds).toEqual(['scaled', 'ready', 'created']);
    expect(await ofFunction.page.getByRole('link', { name: 'All events of this function' }).getAttribute('href')).toBe(
      '#/events?function=0%40svc%40told',
    );
    await using ofJob = await open('jobs/told');
    await ofJob.rows.getByText('FAILED', { exact: true }).waitFor();
    await ofJob.rows.getByText('exit code 3').waitFor();
    await ofJob.page.getByRole('link', { name: 'All events of this job' }).click();
    await ofJob.page.getByText('Only events of the job').waitFor();
    await expect.poll(() => ofJob.rows.count()).toBe(3);
  });
});
