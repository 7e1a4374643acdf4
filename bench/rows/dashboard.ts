import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import type { Served } from '../../scripts/served.ts';
import { openSqlite } from '../../src/storage/sqlite.ts';
import { openBrowser } from '../../test/parts/browser.ts';
import { browserBinary } from '../../test/probe.ts';
import { type Bed, type BenchRow, NotHere } from '../bed.ts';
import { atMost, delay, type Measurement } from '../measure.ts';
import { cpuSeconds } from '../processes.ts';
import { Rookery } from '../rookery.ts';

const AGENTS = 1000;
const JOBS = 10_000;
const PAGES = 20;

/** Times that show how smoothly a page draws. Milliseconds. */
interface Smoothness {
  readonly frames: number;
  readonly longestFrame: number;
  /** Processor time of the longest tasks. Other work of the machine does not change these numbers. */
  readonly longestTasks: readonly number[];
}

/**
 * Measures the dashboard's long lists while they change, and the processor time that an open page costs the
 * service.
 */
export const dashboard: BenchRow = {
  name: 'dashboard',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    if (browserBinary() === null) throw new NotHere('no browser is installed');
    const first = await Rookery.start(bed.python);
    let served: Served | undefined;
    let browser: Browser | undefined;
    try {
      await submit(first.url);
      await first.create();
      await first.served.end();
      multiply(join(first.served.dataDir, 'rookery.db'));
      served = await first.served.next();
      browser = await openBrowser();
      const agents = await smoothness(browser, served, 'agents', 'e2e');
      const jobs = await smoothness(browser, served, 'jobs', 'echo');
      const cpu = await cpuOfPages(browser, served, bed.isQuick ? 10_000 : 30_000);
      bed.raw.dashboard = { agents, jobs, cpu };
      return [
        ...measurements(`${AGENTS} agents`, agents),
        ...measurements(`${JOBS} jobs`, jobs),
        {
          what: `an open page, the server's processor time, share of one core (of ${PAGES} pages, above none)`,
          value: (cpu.open - cpu.none) / PAGES,
          unit: '%',
          target: atMost('value', 0.5),
        },
      ];
    } finally {
      await browser?.close();
      await served?.end();
      await first.remove();
    }
  },
};

function measurements(what: string, { longestFrame, longestTasks }: Smoothness): readonly Measurement[] {
  return [
    {
      what: `a list of ${what}, scrolled, searched and changed: the longest task of the page, processor time`,
      value: longestTasks[0] ?? 0,
      unit: 'ms',
      target: atMost('value', 50),
    },
    {
      what: 'the same: the longest time between two frames, with all that runs beside it',
      value: longestFrame,
      unit: 'ms',
    },
  ];
}

/** Submits a job that ends at once. Resolves when the job has succeeded. */
async function submit(url: string): Promise<void> {
  const answer = await fetch(`${url}/api/jobs/`, { method: 'POST', body: '{"entrypoint":"true"}' });
  const { submission_id: id } = (await answer.json()) as { submission_id: string };
  for (let status = ''; status !== 'SUCCEEDED'; await delay(100)) {
    ({ status } = (await (await fetch(`${url}/api/jobs/${id}`)).json()) as { status: string });
    if (status === 'FAILED') throw new Error('the job of the bench failed');
  }
}

/** Copies one agent and one job in the database until the lists are full. All copies have ended. */
function multiply(file: string): void {
  const before = process.umask(0o077);
  const database = openSqlite(file);
  try {
    database.exec('BEGIN');
    copy('instances', "owner_kind = 'agent'", AGENTS - 1, at => {
      const id = randomUUID();
      const state = {
        status: 'FAILED',
        status_reason: 'instance exited: exit code 7',
        handle: null,
        sandbox: NO_SANDBOX,
      };
      return { id, owner_key: id, name: `worker-${at}`, namespace: `team-${at % 17}`, ...state };
    });
    copy('jobs', '1 = 1', JOBS - 1, (at, row) => ({
      sequence: Number(row.sequence) + at + 1,
      id: `job-${at}`,
      ...(at % 3 === 0
        ? { status: 'FAILED', message: 'Job failed due to an application error, last available logs' }
        : {}),
    }));
    database.exec('COMMIT');
  } finally {
    database.close();
    process.umask(before);
  }

  function copy(table: string, where: string, count: number, changes: (at: number, row: Cells) => Cells): void {
    const row = database.prepare(`SELECT * FROM ${table} WHERE ${where} LIMIT 1`).get() as Cells | undefined;
    if (row === undefined) throw new Error(`${table} has no row to copy`);
    const columns = Object.keys(row);
    const insert = database.prepare(`INSERT INTO ${table} VALUES (${columns.map(() => '?').join()})`);
    for (let at = 0; at < count; at++) {
      const next: Cells = { ...row, ...changes(at, row) };
      insert.run(...columns.map(column => next[column] ?? null));
    }
  }
}

type Cells = Record<string, string | number | bigint | null>;
const NO_SANDBOX = JSON.stringify({
  ...{ sandboxId: '', nodeIp: '', sandboxIp: '' },
  ...{ portMappings: [], isolation: [], warnings: [] },
});

/** Scrolls the list of `view` to its end and back, searches it, and submits a job that changes it. */
async function smoothness(browser: Browser, served: Served, view: string, word: string): Promise<Smoothness> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
  try {
    await page.goto(`${served.frontendUrl}/#/${view}`);
    await page.locator('.table.long tbody tr').nth(5).waitFor();
    await delay(1000);
    await browser.startTracing(page, { categories: ['toplevel', 'disabled-by-default-devtools.timeline'] });
    await page.evaluate(WATCH);
    const changes = submit(served.frontendUrl);
    await page.evaluate(SCROLL);
    await page.getByLabel('Search').pressSequentially(word, { delay: 60 });
    await page.getByLabel('Search').fill('');
    await changes;
    await delay(1000);
    const frames = await page.evaluate<number[]>('drawn');
    const longestTasks = longestOf(JSON.parse(String(await browser.stopTracing())) as Trace);
    return { frames: frames.length, longestFrame: Math.max(0, ...frames), longestTasks };
  } finally {
    await page.close();
  }
}

interface Trace {
  readonly traceEvents: readonly {
    readonly name: string;
    readonly pid: number;
    readonly tid: number;
    /** Processor time of the thread in microseconds. */
    readonly tdur?: number;
    readonly args?: { readonly name?: string };
  }[];
}

/** Returns the longest tasks, in milliseconds, of the threads that run pages. */
function longestOf({ traceEvents }: Trace): readonly number[] {
  const threads = traceEvents
    .filter(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain')
    .map(({ pid, tid }) => `${pid}/${tid}`);
  return traceEvents
    .filter(({ name, pid, tid }) => /RunTask$/.test(name) && threads.includes(`${pid}/${tid}`))
    .map(({ tdur }) => (tdur ?? 0) / 1000)
    .sort((one, other) => other - one)
    .slice(0, 8);
}

const WATCH = `(() => {
  window.drawn = [];
  let before = performance.now();
  const tick = now => { window.drawn.push(now - before); before = now; requestAnimationFrame(tick); };
  requestAnimationFrame(now => { before = now; requestAnimationFrame(tick); });
})()`;
/** Scrolls to the end and back in three seconds, one step for each frame. */
const SCROLL = `new Promise(resolve => {
  const list = document.querySelector('.table.long');
  const begun = performance.now();
  const step = now => {
    const part = (now - begun) / 3000;
    list.scrollTop = (list.scrollHeight - list.clientHeight) * (1 - Math.abs(1 - 2 * part));
    if (part < 1) requestAnimationFrame(step); else resolve();
  };
  requestAnimationFrame(step);
})`;

/** Returns the server's processor time without a page and with all pages open, in percent of a core. */
async function cpuOfPages(browser: Browser, { pid, frontendUrl }: Served, windowMs: number) {
  const share = async () => {
    const before = cpuSeconds([pid]);
    await delay(windowMs);
    return ((cpuSeconds([pid]) - before) / (windowMs / 1000)) * 100;
  };
  const none = await share();
  const pages: Page[] = [];
  for (let count = 0; count < PAGES; count++) {
    const page = await browser.newPage();
    pages.push(page);
    await page.goto(frontendUrl);
    await page.locator('.live.on').waitFor();
  }
  await delay(3000);
  const open = await share();
  for (const page of pages) await page.close();
  return { none, open, pages: pages.length };
}
