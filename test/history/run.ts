import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Random } from '../parts/random.ts';
import { brokenPromises } from './checks.ts';
import { Client } from './client.ts';
import { Clients } from './clients.ts';
import { CODE } from './code.ts';
import { History } from './record.ts';
import { HarmedService } from './service.ts';

export interface HistoryPlan {
  readonly seed: number;
  /** How long harm is done. */
  readonly durationMs: number;
  readonly clients: number;
  /** Told as it happens. */
  readonly onHarm?: (what: string) => void;
}

export interface HistoryReport {
  /** Each is a promise that was broken. */
  readonly violations: readonly string[];
  readonly harms: Readonly<Record<string, number>>;
  /** What was asked, by its answer. */
  readonly counts: Readonly<Record<string, number>>;
  readonly agents: number;
  readonly asyncCalls: number;
  readonly jobs: number;
}

/** Between two harms: time to begin work that the next one hits. */
const REST_MS = [300, 6_000] as const;
/** Between two requests of one client. */
const PAUSE_MS = [5, 60] as const;
const FULL_DISK = 'full disk';
const FEW_DESCRIPTORS = [40, 140] as const;

/**
 * A random history: clients create, call, change and delete, while the service is killed, frozen, without disk and without descriptors.
 * Then it is left alone, and held to everything that it acknowledged. The same seed makes the same choices, though not the same timing.
 */
export async function runHistory({ seed, durationMs, clients, onHarm }: HistoryPlan): Promise<HistoryReport> {
  const python = (await findInterpreters()).at(-1);
  if (!python) throw new Error('no Python interpreter is here');
  const codeDir = mkdtempSync(join(tmpdir(), 'rookery-history-code-'));
  const marksDir = mkdtempSync(join(tmpdir(), 'rookery-history-marks-'));
  writeFileSync(join(codeDir, 'history.py'), CODE);
  const history = new History();
  const harms: Record<string, number> = {};
  const service = await HarmedService.start();
  const client = new Client(service.frontendPort, service.metaPort);
  const violations: string[] = [];
  try {
    const places = { codeDir, marksDir, runtime: `python${python.version}` };
    await registerMarker(client, places);
    const random = new Random(seed);
    const endsAtMs = performance.now() + durationMs;
    const loops = Array.from({ length: clients }, async (_, index) => {
      const own = new Random(seed * 1000 + index);
      const doer = new Clients(client, history, own, places, `c${index}`);
      while (performance.now() < endsAtMs) {
        await doer.act();
        await delay(own.integer(...PAUSE_MS));
      }
    });
    try {
      while (performance.now() < endsAtMs) {
        await delay(random.integer(...REST_MS));
        const [name, harm] = harmOf(service, random);
        onHarm?.(name);
        const fromMs = Date.now();
        await harm();
        if (name === FULL_DISK) history.diskFull.push({ fromMs, toMs: Date.now() });
        harms[name] = (harms[name] ?? 0) + 1;
      }
    } finally {
      await Promise.all(loops);
    }
    violations.push(...(await brokenPromises(client, history, marksDir)));
  } catch (error) {
    violations.push(`the history could not be finished: ${String(error)} ${String((error as Error).cause ?? '')}`);
  } finally {
    await client.close();
    violations.push(...(await service.end()));
    rmSync(codeDir, { recursive: true, force: true });
    rmSync(marksDir, { recursive: true, force: true });
  }
  const { agents, asyncCalls, jobs, counts } = history;
  return { violations, harms, counts, agents: agents.length, asyncCalls: asyncCalls.length, jobs: jobs.length };
}

function harmOf(service: HarmedService, random: Random): readonly [string, () => Promise<void>] {
  const dice = random.next();
  if (dice < 0.3) return ['kill', () => service.kill(false, 0)];
  if (dice < 0.5) return ['kill while it starts', () => service.kill(true, random.integer(50, 1200))];
  if (dice < 0.6) return ['freeze the server', () => service.freeze('server', random.integer(200, 4_000))];
  if (dice < 0.7) return ['freeze zygotes', () => service.freeze('zygote', random.integer(200, 4_000))];
  if (dice < 0.78) return ['kill zygotes', async () => service.killZygotes()];
  if (dice < 0.9 && service.hasOwnDisk) return [FULL_DISK, () => service.fillDisk(random.integer(300, 3_000))];
  return ['few descriptors', () => service.starve(random.integer(...FEW_DESCRIPTORS), random.integer(300, 2_000))];
}

/** The function of asynchronous calls, whose runs leave marks on the host. */
async function registerMarker(client: Client, places: { codeDir: string; marksDir: string; runtime: string }) {
  const answer = await client.ask('POST', '/serverless/v1/functions', {
    meta: true,
    body: {
      name: '0@history@marker',
      kind: 'faas',
      runtime: places.runtime,
      cpu: 100,
      memory: 128,
      handler: 'history.mark',
      storageType: 'local',
      codePath: places.codeDir,
      timeout: 30,
      maxInstance: 2,
      concurrentNum: 4,
      rootfs: { mounts: [{ source: places.marksDir, target: '/marks' }] },
    },
  });
  if (answer?.body.code !== 0) throw new Error(`the marker was not registered: ${JSON.stringify(answer)}`);
}
