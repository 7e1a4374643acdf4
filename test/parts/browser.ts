import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, chromium, type Page } from 'playwright-core';
import { browserBinary } from '../probe.ts';

/** Opens the browser of this machine without a window. */
export async function openBrowser(): Promise<Browser> {
  const executablePath = browserBinary();
  if (executablePath === null) throw new Error('no browser is installed');
  return await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

/** Returns a list that collects errors of scripts and violations of the page's content security policy. */
export function complaintsOf(page: Page): readonly string[] {
  const complaints: string[] = [];
  page.on('pageerror', error => complaints.push(`uncaught: ${error.message}`));
  page.on('console', message => {
    const text = message.text();
    // A request that is rejected on purpose is not a fault of the page.
    if (message.type() === 'error' && !text.startsWith('Failed to load resource')) complaints.push(text);
  });
  return complaints;
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Returns the accessibility violations that axe finds, one line for each place. */
export async function violationsOf(page: Page): Promise<readonly string[]> {
  // The script runs outside of the page's own world, where its content security policy forbids scripts.
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
