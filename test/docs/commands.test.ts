import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
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
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served } from '../../scripts/served.ts';
import { describeWith, type Part, skippedTest } from '../probe.ts';

/**
 * Follows every page of the documents from its first line to its last: one shell for the page, in a fresh directory with `examples/`, against a
 * server of its own. Every command must succeed. It prints the text behind `# →`, where `…` is anything.
 *
 * The words behind `sh` in a fence say what the block needs: a part of `test/probe.ts`, or
 * - `serves`: its last command goes on until it is ended. It has to say something, and SIGTERM has to end it;
 * - `by-hand: WHY`: nobody runs it here, and a skipped test says so.
 * A block of another language with `file=NAME` is written to that file first.
 */
interface Block {
  readonly language: string;
  readonly words: readonly string[];
  /** Why nobody runs it here; null when it is run. */
  readonly byHand: string | null;
  readonly lines: readonly string[];
  readonly at: number;
}

interface Page {
  readonly name: string;
  readonly blocks: readonly Block[];
}

const PAGE_TIMEOUT_MS = 300_000;
/** How pages write the place of the repository. */
const CLONE = '/path/to/rookery';
/** The address of an exposed port; the service of a page has a port of its own. */
const ADDRESS = /(\w--\w+)\.localhost:8888/g;
/** How pages write the place of a data directory. */
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
  ...readdirSync(join(ROOT, 'docs'))
    .filter(name => name.endsWith('.md'))
    .map(name => `docs/${name}`),
]
  .map(readPage)
  .filter(({ blocks }) => blocks.some(({ language }) => language === 'sh'));

for (const page of PAGES) {
  const words = page.blocks.flatMap(block => (isRun(block) ? block.words : []));
  const parts = [...new Set(words)].filter(word => word !== SERVES);
  describeWith(parts as Part[], page.name, () => {
    test('every command does what the page says', async () => follow(page), PAGE_TIMEOUT_MS);
  });
  for (const { at, byHand } of page.blocks) {
    if (byHand !== null) skippedTest(`${page.name}, the block of line ${at}`, `by hand: ${byHand}`);
  }
}

test('a block that nobody runs says why', () => {
  const silent = PAGES.flatMap(({ name, blocks }) =>
    blocks.filter(({ byHand }) => byHand === '').map(({ at }) => `${name}:${at}`),
  );
  expect(silent).toEqual([]);
});

test('no page is left out: they have blocks that are run', () => {
  expect(PAGES.filter(({ blocks }) => blocks.some(isRun)).map(({ name }) => name)).toEqual(
    expect.arrayContaining([
      'README.md',
      'docs/functions.md',
      'docs/jobs.md',
      'docs/registry.md',
      'docs/sandbox-io.md',
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
  writeFileSync(
    join(root, 'bin/rookery'),
    `#!/bin/sh\nexec "${process.execPath}" "${join(ROOT, 'dist/main.js')}" "$@"\n`,
  );
  chmodSync(join(root, 'bin/rookery'), 0o755);
  const server = await Served.start();
  try {
    const python = `python${(await findInterpreters()).at(-1)?.version}`;
    const expected: { readonly at: number; readonly text: string }[] = [];
    const script = ['set -eu', ...page.blocks.flatMap(block => scriptOf(block, here, expected))]
      .join('\n')
      .replaceAll(ADDRESS, `$1.localhost:${new URL(server.frontendUrl).port}`)
      .replaceAll(/(127\.0\.0\.1|localhost):8888/g, new URL(server.frontendUrl).host)
      .replaceAll(/(127\.0\.0\.1|localhost):31182/g, new URL(server.metaUrl).host)
      .replaceAll('python3.11', python)
      .replaceAll(CLONE, CLONED)
      .replaceAll(DATA_DIR, join(root, 'data'));
    const ran = await runScript(script, here, {
      PATH: `${join(root, 'bin')}:${process.env.PATH}`,
      HOME: process.env.HOME ?? root,
      // What a page logs in to is its own.
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

/** The block as lines of the script; where the page shows an output, a mark says so in the script's own. */
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
    // A continued line stays one with the next.
    script.push(command);
    if (text === undefined) return;
    expected.push({ at, text: text.trim() });
    script.push(`printf '${MARK}'`);
  });
  return [`echo '@line ${block.at}' >&2`, ...(block.words.includes(SERVES) ? untilSaid(script) : script)];
}

/** The last command as a program of its own until it has said something. A service has any ports: those of the page may be somebody else's. */
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

/** What was printed last (what stands before it may be of another command). */
function matches(printed: string, text: string): boolean {
  const pattern = text
    .split('…')
    .map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('.*');
  return new RegExp(`${pattern}$`, 's').test(printed);
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
