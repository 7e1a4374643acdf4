import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith, type Part, skippedTest } from '../probe.ts';
import { currentScope } from '../scope.ts';

/**
 * A block of a page. The test follows every page of the documents from its first line to its last. Each page
 * has one shell, in a fresh directory with `examples/`, and its own server. Every command must succeed and
 * print the text after `# →`, where `…` matches anything.
 *
 * The words after `sh` in a fence name the needs of the block: a part of `test/probe.ts`, or
 * - `serves`: its last command runs until it is ended. It must print something, and SIGTERM must end it;
 * - `by-hand: WHY`: the test does not run it, and a skipped test reports that.
 * The test first writes a block of another language with `file=NAME` to that file.
 */
interface Block {
  readonly language: string;
  readonly words: readonly string[];
  /** Reason why the block runs only by hand; null when the test runs it. */
  readonly byHand: string | null;
  readonly lines: readonly string[];
  readonly at: number;
}

interface Page {
  readonly name: string;
  readonly blocks: readonly Block[];
}

const PAGE_TIMEOUT_MS = 300_000;
/** Path of the repository as the pages write it. */
const CLONE = '/path/to/rookery';
/** Address of an exposed port; in the test, the service of a page has another port. */
const ADDRESS = /(\w--\w+)\.localhost:8888/g;
/** Path of a data directory as the pages write it. */
const DATA_DIR = '/var/lib/rookery';
const SERVES = 'serves';
const CLONED = ROOT.replace(/\/$/, '');
const MARK = '\x1e';
const roots: string[] = [];
afterAll(() => {
  for (const root of roots) rmSync(root, { recursive: true, force: true });
});

const PAGES = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md'))
    .sort()
    .map(name => `docs/${name}`),
  ...readdirSync(join(ROOT, 'examples'))
    .filter(name => existsSync(join(ROOT, 'examples', name, 'README.md')))
    .map(name => `examples/${name}/README.md`),
]
  .map(readPage)
  .filter(({ blocks }) => blocks.some(({ language }) => language === 'sh'));

/**
 * `npm test` runs the pages. Only the full run includes the examples and the pages that install packages,
 * each of which takes 7 to 40 s.
 */
const SCOPE = currentScope();
const isLong = ({ name, blocks }: Page) =>
  name.startsWith('examples/') || blocks.some(block => isRun(block) && block.words.includes('pypi'));
const isOfScope = (page: Page) => SCOPE === 'full' || isLong(page) === (SCOPE === 'rest');

for (const page of PAGES.filter(isOfScope)) {
  const words = page.blocks.flatMap(block => (isRun(block) ? block.words : []));
  const parts = [...new Set(words)].filter(word => word !== SERVES);
  describeWith(parts as Part[], page.name, () => {
    test('the page runs every command with the output that it shows', async () => follow(page), PAGE_TIMEOUT_MS);
  });
  for (const { at, byHand } of page.blocks) {
    if (byHand !== null) skippedTest(`${page.name}, the block of line ${at}`, `by hand: ${byHand}`);
  }
}

test('a block that runs only by hand names the reason', () => {
  const silent = PAGES.flatMap(({ name, blocks }) =>
    blocks.filter(({ byHand }) => byHand === '').map(({ at }) => `${name}:${at}`),
  );
  expect(silent).toEqual([]);
});

test('every example has a README with a block that runs, or with the reason why it does not', () => {
  const examples = readdirSync(join(ROOT, 'examples'), { withFileTypes: true }).filter(entry => entry.isDirectory());
  const pages = PAGES.map(({ name }) => name);
  expect(examples.map(({ name }) => `examples/${name}/README.md`).filter(name => !pages.includes(name))).toEqual([]);
});

test('the five most important pages contain blocks that run', () => {
  expect(PAGES.filter(({ blocks }) => blocks.some(isRun)).map(({ name }) => name)).toEqual(
    expect.arrayContaining([
      'README.md',
      'docs/guides/functions.md',
      'docs/guides/jobs.md',
      'docs/reference/registry.md',
      'docs/guides/files-terminals-ports.md',
    ]),
  );
});

function readPage(name: string): Page {
  const blocks: Block[] = [];
  let open: { language: string; words: string[]; byHand: string | null; lines: string[]; at: number } | null = null;
  readFileSync(join(ROOT, name), 'utf8')
    .split('\n')
    .forEach((line, index) => {
      if (open === null && line.startsWith('```')) {
        const [info = '', why] = line.slice(3).split(/\bby-hand:?/);
        const [language = '', ...words] = info.trim().split(/\s+/);
        open = { language, words, byHand: why === undefined ? null : why.trim(), lines: [], at: index + 2 };
      } else if (open !== null && line.trim() === '```') {
        blocks.push(open);
        open = null;
      } else open?.lines.push(line);
    });
  return { name, blocks };
}

function isRun({ language, byHand }: Block): boolean {
  return language === 'sh' && byHand === null;
}

async function follow(page: Page): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'rookery-docs-'));
  roots.push(root);
  const here = join(root, 'here');
  cpSync(join(ROOT, 'examples'), join(here, 'examples'), { recursive: true });
  for (const link of ['dist', 'runtimes']) symlinkSync(join(ROOT, link), join(here, link));
  mkdirSync(join(root, 'bin'));
  // The pages are about a machine with a data directory.
  mkdirSync(join(root, 'data'), { mode: 0o700 });
  writeFileSync(
    join(root, 'bin/rookery'),
    `#!/bin/sh\nexec "${process.execPath}" "${join(ROOT, 'dist/main.js')}" "$@"\n`,
  );
  chmodSync(join(root, 'bin/rookery'), 0o755);
  const server = await Served.start({ args: [STOP_AGENTS] });
  try {
    const expected: { readonly at: number; readonly text: string }[] = [];
    const script = ['set -eu', ...page.blocks.flatMap(block => scriptOf(block, here, expected))]
      .join('\n')
      .replaceAll(ADDRESS, `$1.localhost:${new URL(server.frontendUrl).port}`)
      .replaceAll(/(127\.0\.0\.1|localhost):8888/g, new URL(server.frontendUrl).host)
      .replaceAll(/(127\.0\.0\.1|localhost):31182/g, new URL(server.metaUrl).host)
      .replaceAll(CLONE, CLONED)
      .replaceAll(DATA_DIR, join(root, 'data'));
    const ran = await runScript(script, here, {
      PATH: `${join(root, 'bin')}:${process.env.PATH}`,
      HOME: process.env.HOME ?? root,
      // The page logs in with its own configuration.
      XDG_CONFIG_HOME: join(root, '.config'),
      ROOKERY_ADDRESS: server.frontendUrl,
      ROOKERY_META_ADDRESS: server.metaUrl,
    });
    const told = ran.out.split(MARK);
    const last = told.at(-1) ?? '';
    if (ran.code !== 0)
      throw new Error(`${page.name}, in or behind line ${ran.line}: exit code ${ran.code}\n${last}\n${ran.err}`);
    expected.forEach(({ at, text }, index) => {
      const printed = (told[index] ?? '').trim();
      const shown = text.replaceAll(ADDRESS, `$1.localhost:${new URL(server.frontendUrl).port}`);
      expect(matches(printed, shown), `${page.name}:${at}: the page shows\n${text}\nand it prints\n${printed}`).toBe(
        true,
      );
    });
  } finally {
    await server.remove();
  }
}

/** Returns the script lines of a block. A line that prints `MARK` marks each output that the page shows. */
function scriptOf(block: Block, here: string, expected: { at: number; text: string }[]): string[] {
  const file = block.words.find(word => word.startsWith('file='));
  if (file !== undefined) {
    const path = join(here, file.slice('file='.length));
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `${block.lines.join('\n').replaceAll(CLONE, CLONED)}\n`);
    return [];
  }
  if (!isRun(block)) return [];
  const script: string[] = [];
  block.lines.forEach((line, index) => {
    const at = block.at + index;
    const [command = '', text] = line.split(/\s*# → /);
    // A continued line must stay joined with the next one.
    script.push(command);
    if (text === undefined) return;
    expected.push({ at, text: text.trim() });
    script.push(`printf '${MARK}'`);
  });
  return [`echo '@line ${block.at}' >&2`, ...(block.words.includes(SERVES) ? untilSaid(script) : script)];
}

/**
 * Runs the last command in the background until it prints something, then ends it. It uses free ports, since
 * those of the page may be in use.
 */
function untilSaid(script: readonly string[]): string[] {
  return [
    ...script.slice(0, -1),
    'rm -f serves.out',
    '( export ROOKERY_PORT=0 ROOKERY_META_PORT=0 ROOKERY_DATA_DIR="$PWD/served"',
    `exec ${script.at(-1)}`,
    ') >serves.out 2>serves.err &',
    'for (( tries = 0; tries < 300; tries++ )); do [ -s serves.out ] && break; sleep 0.1; done',
    'kill -TERM $!',
    'wait $! || [ $? -eq 143 ] || { cat serves.out serves.err >&2; exit 1; }',
    '[ -s serves.out ] || { cat serves.err >&2; exit 1; }',
  ];
}

/** Warnings that a less isolated machine adds to the answer of a create. */
const WARNINGS = /,"warnings":\[[^\]]*\]/g;

/** Returns true if the output ends with `text`; an earlier command may have printed the text before it. */
function matches(printed: string, text: string): boolean {
  const pattern = text
    .split('…')
    .map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('.*');
  return new RegExp(`${pattern}$`, 's').test(printed.replaceAll(WARNINGS, ''));
}

async function runScript(script: string, cwd: string, env: Readonly<Record<string, string>>) {
  const child = spawn('bash', ['-c', script], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  let out = '';
  let err = '';
  child.stdout.on('data', chunk => {
    out += String(chunk);
  });
  child.stderr.on('data', chunk => {
    err += String(chunk);
  });
  const timer = setTimeout(() => {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
  }, PAGE_TIMEOUT_MS - 30_000);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  const line = [...err.matchAll(/^@line (\d+)$/gm)].at(-1)?.[1] ?? '?';
  return { code, out, err: err.replaceAll(/^@line \d+\n/gm, ''), line };
}
