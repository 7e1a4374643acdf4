import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Served } from '../../scripts/served.ts';

export interface CrashPlan {
  readonly jobs: number;
  readonly kills: number;
}

const END_TIMEOUT_MS = 180_000;
/** Timeout of a submit: another program that never answers may have got the port of a killed server. */
const SUBMIT_TIMEOUT_MS = 10_000;
const MAX_LINES = 12;

interface Planned {
  readonly id: string;
  readonly lines: number;
  readonly exitCode: number;
}

/**
 * Submits jobs of mixed length while SIGKILL ends the server repeatedly. Returns a sentence for each
 * violation. Every job must run exactly once, end in the right state and have its whole log.
 */
export async function crash({ jobs, kills }: CrashPlan): Promise<readonly string[]> {
  // Jobs write marks on the host, so that a second run is visible.
  const marks = mkdtempSync(join(tmpdir(), 'rookery-crash-'));
  const planned = Array.from({ length: jobs }, (_, index): Planned => {
    return { id: `crash-${index}`, lines: 1 + (index % MAX_LINES), exitCode: index % 5 === 0 ? 3 : 0 };
  });
  let server = await Served.start({ args: ['--set', 'jobs.allowHostPaths=true'] });
  const first = server;
  try {
    const submitting = submitAll(() => server.frontendUrl, planned, marks);
    for (let kill = 0; kill < kills; kill += 1) {
      await delay(Math.random() * 700);
      await server.end('SIGKILL');
      server = await server.next();
    }
    await submitting;
    await allEnded(server.frontendUrl, END_TIMEOUT_MS);
    const problems: string[] = [];
    for (const each of planned) problems.push(...(await problemsOf(server.frontendUrl, each, marks)));
    await server.end();
    return problems;
  } finally {
    await server.end('SIGKILL');
    await first.remove();
    rmSync(marks, { recursive: true, force: true });
  }
}

async function submitAll(url: () => string, planned: readonly Planned[], marks: string): Promise<void> {
  for (const { id, lines, exitCode } of planned) {
    const body = JSON.stringify({
      submission_id: id,
      runtime_env: { working_dir: marks },
      entrypoint: `echo run >> ${id}; for i in $(seq ${lines}); do echo line $i; sleep 0.1; done; echo end; exit ${exitCode}`,
    });
    // The client may repeat a submit with the same id and body, since it cannot know whether the service
    // accepted it.
    for (;;) {
      const status = await fetch(`${url()}/api/jobs/`, {
        method: 'POST',
        body,
        signal: AbortSignal.timeout(SUBMIT_TIMEOUT_MS),
      }).then(
        answer => answer.status,
        () => 503,
      );
      if (status === 200) break;
      if (status !== 503) throw new Error(`submit of ${id} answered ${status}`);
      await delay(20);
    }
    await delay(5);
  }
}

async function allEnded(url: string, timeoutMs: number): Promise<void> {
  const deadlineMs = Date.now() + timeoutMs;
  while (Date.now() < deadlineMs) {
    const records = (await (await fetch(`${url}/api/jobs`)).json()) as { status: string }[];
    if (!records.some(({ status }) => status === 'PENDING' || status === 'RUNNING')) return;
    await delay(200);
  }
}

async function problemsOf(url: string, { id, lines, exitCode }: Planned, marks: string): Promise<string[]> {
  const record = (await (await fetch(`${url}/api/jobs/${id}`)).json()) as Record<string, unknown>;
  const { logs } = (await (await fetch(`${url}/api/jobs/${id}/logs`)).json()) as { logs: string };
  const problems: string[] = [];
  const status = exitCode === 0 ? 'SUCCEEDED' : 'FAILED';
  if (record.status !== status || record.driver_exit_code !== exitCode) {
    problems.push(
      `${id} ended as ${record.status} with ${record.driver_exit_code}, expected ${status} with ${exitCode}: ${record.message}`,
    );
  }
  const expected = `${Array.from({ length: lines }, (_, at) => `line ${at + 1}\n`).join('')}end\n`;
  if (logs !== expected) problems.push(`${id} has the log ${JSON.stringify(logs)}, expected ${lines} lines and an end`);
  const runs = readMark(join(marks, id)).split('\n').length - 1;
  if (runs !== 1) problems.push(`${id} ran ${runs} times`);
  return problems;
}

function readMark(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
