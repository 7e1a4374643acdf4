import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { SignJWT } from 'jose';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { openBrowser, violationsOf } from '../parts/browser.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';
import { installClient } from './client-package.ts';

const SECRET = 'a secret that is at least 32 bytes long';
const HANDLERS = `
def echo(event, context):
    return event

def pieces(event, context):
    yield 'first'
    yield event['say']
`;
/** A text with characters that are special in shells, Python or TypeScript. */
const SAY = `it's "$HOME" \\ \`id\` ü😀 <b> end`;
/** Timeout of the installation from a package index. */
const INSTALL_MS = 300_000;
const NAME = '0@svc@pieces';
const LANGUAGES = ['curl', 'TypeScript', 'Python', 'CLI'] as const;
type Language = (typeof LANGUAGES)[number];

describeWith(['browser', 'pypi'], 'the texts of a call that the dashboard copies', () => {
  let bed: Bed;
  let browser: Browser;
  let page: Page;
  let directory: string;
  let token: string;
  let agentId: string;

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-copies-'));
    const code = join(directory, 'code');
    for (const name of ['code', 'bin']) mkdirSync(join(directory, name));
    writeFileSync(join(directory, 'secret'), SECRET);
    writeFileSync(join(code, 'main.py'), HANDLERS);
    await installClient(directory);
    await installPython(directory);
    writeFileSync(join(directory, 'bin/rookery'), `#!/bin/sh\nexec node ${join(ROOT, 'dist/main.js')} "$@"\n`, {
      mode: 0o755,
    });
    const settings = ['enable_func_token_auth=true', `jwt.secretFile=${directory}/secret`, `mounts.allow=${code}`];
    bed = await Bed.start({}, { args: settings.flatMap(setting => ['--set', setting]) });
    const jwt = new SignJWT({ role: 'developer' }).setProtectedHeader({ alg: 'HS256' }).setSubject('acme');
    token = await jwt.setExpirationTime('1h').sign(Buffer.from(SECRET));
    const headers = { 'x-auth': token };
    const mounts = [{ source: code, target: '/code', readonly: true }];
    const made = await bed.ask('POST', '/api/agent', bed.createBody('echo', 'main.echo', {}, { mounts }), { headers });
    expect(made).toMatchObject({ status: 200 });
    agentId = String(made.body.instance_id);
    const fn = {
      ...{ name: NAME, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, timeout: 30 },
      ...{ handler: 'main.pieces', storageType: 'local', codePath: code },
    };
    const registered = await bed.ask('POST', '/serverless/v1/functions', fn, { meta: true, headers });
    expect(registered.body).toMatchObject({ code: 0 });
    browser = await openBrowser();
    page = await browser.newPage({ viewport: { width: 390, height: 860 } });
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.goto(bed.server.frontendUrl);
    await page.getByLabel('Token').fill(token);
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
  }, INSTALL_MS);
  afterAll(async () => {
    await browser?.close();
    await bed?.[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true, force: true });
  });

  /** Opens a form, types the body, and returns the text in the clipboard after the click on a language. */
  async function copied(path: string, language: Language, body: string, mode = ''): Promise<string> {
    await page.evaluate(`location.hash = ${JSON.stringify(`#/${path}`)}`);
    await page.getByLabel('Body', { exact: true }).fill(body);
    if (mode !== '') await page.getByLabel('How').selectOption(mode);
    await page.getByRole('button', { name: language, exact: true }).click();
    await page.getByText('Copied.').waitFor();
    const text = await page.evaluate<string>('navigator.clipboard.readText()');
    expect(await page.getByRole('region', { name: `The call as ${language}` }).textContent()).toBe(text);
    expect(text).not.toContain(token);
    expect(await violationsOf(page)).toEqual([]);
    expect(await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
    return text;
  }

  /** Runs a copied text and returns its output. */
  async function outputOf(language: Language, text: string): Promise<string> {
    const file = join(
      directory,
      { curl: 'call.sh', CLI: 'call.sh', Python: 'call.py', TypeScript: 'call.mjs' }[language],
    );
    writeFileSync(file, text);
    const program = { curl: 'sh', CLI: 'sh', Python: join(directory, 'venv/bin/python'), TypeScript: 'node' }[language];
    const env = {
      ROOKERY_TOKEN: token,
      PATH: [join(directory, 'bin'), process.env.PATH].join(delimiter),
      PYTHONPATH: join(ROOT, 'clients/python/src'),
      PYTHONDONTWRITEBYTECODE: '1',
      PYTHONIOENCODING: 'utf-8',
    };
    const { code, output } = await run(program, [file], { cwd: directory, capture: true, env });
    expect({ code, output }).toMatchObject({ code: 0 });
    return output;
  }

  it.each(LANGUAGES)('the copied call of an agent runs as %s, with the body as typed', async language => {
    const text = await copied(`agents/${agentId}/call`, language, JSON.stringify({ say: SAY, all: [true, null, 1.5] }));
    const output = await outputOf(language, text);
    expect(output).toContain('ü😀 <b> end');
    if (language === 'curl') expect(JSON.parse(output)).toMatchObject({ data: { say: SAY, all: [true, null, 1.5] } });
    if (language === 'CLI') expect(JSON.parse(output)).toEqual({ say: SAY, all: [true, null, 1.5] });
  });

  it.each(LANGUAGES)('the copied call of a function runs as %s, streamed and asynchronous', async language => {
    const path = `functions/${encodeURIComponent(NAME)}/call`;
    const body = JSON.stringify({ say: 'the last' }, null, 2);
    const streamed = await outputOf(language, await copied(path, language, body, 'stream'));
    expect(streamed).toMatch(/first[\s\S]*the last/);
    const text = await copied(path, language, body, 'async');
    expect(await outputOf(language, text)).toMatch(language === 'curl' ? /"requestId"/ : /the last/);
  });
});

/** Installs the packages that the client for Python needs. Its sources are those of this repository. */
async function installPython(directory: string): Promise<void> {
  const newest = (await findInterpreters()).at(-1);
  if (newest === undefined) throw new Error('no Python interpreter is here');
  const venv = join(directory, 'venv');
  const install = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--disable-pip-version-check',
    'httpx>=0.27,<1',
    'websockets>=14',
  ];
  for (const [program, args] of [
    [newest.path, ['-m', 'venv', venv]],
    [join(venv, 'bin/python'), install],
  ] as const) {
    expect(await run(program, args, { capture: true })).toMatchObject({ code: 0 });
  }
}
