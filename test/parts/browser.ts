import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, chromium, type Page } from 'playwright-core';
import { browserBinary } from '../probe.ts';

/** The browser of this machine, without a window. */
export async function openBrowser(): Promise<Browser> {
  const executablePath = browserBinary();
  if (executablePath === null) throw new Error('no browser is installed');
  return await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

/** What a page complained of: errors of scripts, and what its policy has stopped. */
export function complaintsOf(page: Page): readonly string[] {
  const complaints: string[] = [];
  page.on('pageerror', error => complaints.push(`uncaught: ${error.message}`));
  page.on('console', message => {
    const text = message.text();
    // A request that was refused on purpose is no fault of the page.
    if (message.type() === 'error' && !text.startsWith('Failed to load resource')) complaints.push(text);
  });
  return complaints;
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe finds wrong, a line for each place. */
export async function violationsOf(page: Page): Promise<readonly string[]> {
  // Outside of the page's own world, which its policy closes.
  await page.evaluate(axe);
  return await page.evaluate(async () => {
    const { violations } = await (globalThis as unknown as { axe: { run(): Promise<Result> } }).axe.run();
    return violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ html }) => `${id}: ${help}: ${html.slice(0, 200)}`),
    );
  });
}

interface Result {
  readonly violations: readonly {
    readonly id: string;
    readonly help: string;
    readonly nodes: readonly { readonly html: string }[];
  }[];
}
