import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { DatabaseSync } from '@photostructure/sqlite';
import { Agent, request } from 'undici';
import { Bed } from '../e2e/agents.ts';
import { type Footprint, settled } from '../e2e/footprint.ts';

export interface SoakOptions {
  readonly functions: number;
  /** `maxInstance` of each function. */
  readonly instancesEach: number;
  readonly callers: number;
  /** Longest duration of a handler. With 600 callers and 400 ms, 50 functions keep their 4 instances busy. */
  readonly handlerMs: number;
  readonly durationMs: number;
  /** Interval between two `kill -9` of an instance. */
  readonly killEveryMs: number;
  /** Ends the server with `kill -9` in the middle of the run. */
  readonly killServer: boolean;
}

/** Results of a run. `faults` must be empty. */
export interface SoakReport {
  readonly faults: readonly string[];
  readonly calls: number;
  readonly outcomes: Readonly<Record<string, number>>;
  readonly killed: number;
  /**
   * Number of calls that failed because their instance was killed, and the longest time until such a call
   * failed.
   */
  readonly lost: number;
  readonly slowestLossMs: number;
  readonly slowestCallMs: number;
  readonly mostInstances: number;
  readonly asyncCalls: number;
  readonly serverRestart: { readonly adopted: number; readonly before: number } | null;
  readonly before: Footprint & Memory;
  readonly after: Footprint & Memory;
}

interface Memory {
  readonly rssMb: number;
}

const CODE = `
import asyncio, os, time

def quick(event, context):
    return event

def busy(event, context):
    time.sleep(event.get("ms", 20) / 1000)
    return os.getpid()

async def waiting(event, context):
    await asyncio.sleep(event.get("ms", 20) / 1000)
    return "waited"

def stream(event, context):
    out = context.get_stream()
    for n in range(20):
        out.write("event %d" % n)
    return "end"

def fail(event, context):
    raise ValueError("on purpose")
`;
const HANDLERS = ['quick', 'busy', 'waiting', 'stream', 'fail'] as const;
const CONCURRENCY = 2;
const SCALE_DOWN_MS = 1000;
const CALL_SECONDS = 60;
/** Longest time until a call of a killed instance fails. Its connection reports the end, not its timeout. */
const AT_ONCE_MS = 20_000;
/** Longest time of a call. A handler, a start and a wait for a slot together take less under this load. */
const LONGEST_CALL_MS = 40_000;
/**
 * Resources that are counted. Mounts and control groups are left out: other programs of the machine change
 * them.
 */
const COUNTED = ['processes', 'files', 'descriptors'] as const;
/** Memory that the heap may keep between two collections. */
const MEMORY_MARGIN_MB = 80;
/** V8 returns memory after half a minute without work. */
const MEMORY_REST_MS = 90_000;

/**
 * Runs mixed calls of many functions while instances are killed. Only calls that ran on a killed instance may
 * fail, and no resource may remain at the end.
 */
export async function soakFunctions(options: SoakOptions): Promise<SoakReport> {
  await using bed = await Bed.start({ 'fn.py': CODE });
  await using soak = new Soak(bed, options);
  return await soak.run();
}

class Soak {
  readonly #bed: Bed;
  readonly #options: SoakOptions;
  readonly #faults: string[] = [];
  readonly #outcomes: Record<string, number> = {};
  readonly #killedAtMs = new Map<string, number>();
  readonly #asyncIds: string[] = [];
  #agent = newAgent();
  #lost = 0;
  #slowestLossMs = 0;
  #slowestCallMs = 0;
  #mostInstances = 0;
  /** True while the server is down. Broken connections are then expected. */
  #isServerAway = false;
  /**
   * Number of kills of the server. A call that was in flight during a kill may be lost, whenever it reports
   * that.
   */
  #serverKills = 0;

  constructor(bed: Bed, options: SoakOptions) {
    this.#bed = bed;
    this.#options = options;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }

  async run(): Promise<SoakReport> {
    const { functions, callers, durationMs, killEveryMs, killServer } = this.#options;
    for (let index = 0; index < functions; index++) await this.#register(index);
    // Loads everything that is loaded late, and waits for its end, before resources are counted.
    for (let index = 0; index < functions; index++) await this.#call(index);
    await this.#quiet();
    const before = { ...(await settled(this.#bed)), ...this.#memory() };
    const endsAtMs = performance.now() + durationMs;
    const loops = [
      ...Array.from({ length: callers }, () => this.#until(endsAtMs, () => this.#call(random(functions)))),
      this.#until(endsAtMs, () => delay(killEveryMs).then(() => this.#killOne())),
      this.#until(endsAtMs, () => delay(250).then(() => this.#countInstances())),
    ];
    let serverRestart: SoakReport['serverRestart'] = null;
    if (killServer) {
      await delay(durationMs / 2);
      serverRestart = await this.#killServer();
    }
    await Promise.all(loops);
    await this.#checkAsync();
    await this.#quiet();
    await this.#agent.close();
    this.#agent = newAgent();
    const { rssMb } = before;
    // A new server may differ from the killed one by a few descriptors.
    const allowed = killServer ? 5 : 0;
    const leftIn = (now: Footprint) => COUNTED.filter(what => now[what] > before[what] + allowed);
    const footprint = await settled(this.#bed, now => leftIn(now).length === 0);
    const after = { ...footprint, ...(await this.#memoryAtRest(rssMb + MEMORY_MARGIN_MB)) };
    for (const what of leftIn(after)) this.#faults.push(`${what}: ${before[what]} before, ${after[what]} after`);
    if (after.rssMb > rssMb + MEMORY_MARGIN_MB)
      this.#faults.push(`memory: ${rssMb} MB before, ${after.rssMb} MB after`);
    const calls = Object.values(this.#outcomes).reduce((sum, count) => sum + count, 0);
    return {
      faults: this.#faults,
      calls,
      outcomes: this.#outcomes,
      killed: this.#killedAtMs.size,
      lost: this.#lost,
      slowestLossMs: Math.round(this.#slowestLossMs),
      slowestCallMs: Math.round(this.#slowestCallMs),
      mostInstances: this.#mostInstances,
      asyncCalls: this.#asyncIds.length,
      serverRestart,
      before,
      after,
    };
  }

  async #register(index: number): Promise<void> {
    const { body } = await this.#bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        name: `0@soak@f${index}`,
        kind: 'faas',
        runtime: this.#bed.runtime,
        cpu: 100,
        memory: 128,
        handler: `fn.${handlerOf(index)}`,
        storageType: 'local',
        codePath: this.#bed.codeDir,
        timeout: CALL_SECONDS,
        concurrentNum: CONCURRENCY,
        maxInstance: this.#options.instancesEach,
        autoScaleConfig: { scaleDownTime: SCALE_DOWN_MS },
      },
      { meta: true },
    );
    if (body.code !== 0) throw new Error(JSON.stringify(body));
  }

  async #until(endsAtMs: number, work: () => Promise<void>): Promise<void> {
    while (performance.now() < endsAtMs && this.#faults.length < 20) await work();
  }

  async #call(index: number): Promise<void> {
    const handler = handlerOf(index);
    const dice = Math.random();
    const isAsync = dice < 0.03;
    const headers: Record<string, string> = { 'content-type': 'application/json' };
    if (isAsync) headers['x-invoke-type'] = 'async';
    else if (handler === 'stream') headers.accept = 'text/event-stream';
    if (dice > 0.9) headers['x-instance-session'] = `s${random(5)}`;
    const startMs = performance.now();
    const kills = this.#serverKills;
    const isLostWithServer = () => this.#isServerAway || this.#serverKills > kills;
    try {
      const {
        statusCode,
        headers: got,
        body,
      } = await request(this.#url(index), {
        method: 'POST',
        dispatcher: this.#agent,
        headers,
        body: JSON.stringify({ ms: random(this.#options.handlerMs) }),
      });
      const text = await body.text();
      const tookMs = performance.now() - startMs;
      this.#slowestCallMs = Math.max(this.#slowestCallMs, tookMs);
      if (tookMs > LONGEST_CALL_MS) this.#faults.push(`f${index}: a call took ${Math.round(tookMs)} ms`);
      if (isAsync && statusCode === 202) {
        this.#asyncIds.push((JSON.parse(text) as { requestId: string }).requestId);
        this.#count('async');
      } else if (!this.#isExpected(index, statusCode, text, String(got['x-instance-id'] ?? ''))) {
        if (isLostWithServer()) this.#count('server away');
        else
          this.#faults.push(
            `f${index} on ${got['x-instance-id'] ?? 'no instance'}: ${statusCode} ${text.slice(0, 300)}`,
          );
      }
    } catch (error) {
      if (isLostWithServer()) {
        this.#count('server away');
        await delay(50);
      } else this.#faults.push(`f${index}: ${(error as Error).message}`);
    }
  }

  /** Returns true if the answer is the function's own, or the call was lost with a killed instance. */
  #isExpected(index: number, status: number, text: string, instanceId: string): boolean {
    const isStream = handlerOf(index) === 'stream';
    if (status === 200 && (!isStream || text.endsWith('data: [DONE]\n\n'))) {
      this.#count('200');
      return true;
    }
    const code = status === 200 ? Number(/"code":(\d+)/.exec(text)?.[1]) : (JSON.parse(text) as { code: number }).code;
    if (code === 4002 && handlerOf(index) === 'fail') {
      this.#count('4002');
      return true;
    }
    const killedAtMs = this.#killedAtMs.get(instanceId);
    if (code === 150427 && killedAtMs !== undefined) {
      this.#count('150427');
      this.#lost += 1;
      const lateMs = performance.now() - killedAtMs;
      this.#slowestLossMs = Math.max(this.#slowestLossMs, lateMs);
      if (lateMs > AT_ONCE_MS) this.#faults.push(`f${index}: told of a killed instance after ${Math.round(lateMs)} ms`);
      return true;
    }
    return false;
  }

  #count(outcome: string): void {
    this.#outcomes[outcome] = (this.#outcomes[outcome] ?? 0) + 1;
  }

  #url(index: number): string {
    return `${this.#bed.server.frontendUrl}/serverless/v1/functions/${urnOf(index)}/invocations`;
  }

  async #killOne(): Promise<void> {
    if (this.#isServerAway) return;
    const rows = this.#rows();
    const row = rows[random(rows.length)];
    if (!row) return;
    const { data } = JSON.parse(row.handle) as { data: { pid?: number } };
    if (data.pid === undefined) return;
    try {
      process.kill(data.pid, 'SIGKILL');
      this.#killedAtMs.set(row.id, performance.now());
    } catch {
      // The process has exited on its own.
    }
  }

  #rows(): { id: string; handle: string }[] {
    const database = new DatabaseSync(databaseOf(this.#bed), { readOnly: true });
    try {
      const owned = "select id, handle from instances where owner_kind = 'function' and handle is not null";
      return database.prepare(owned).all() as { id: string; handle: string }[];
    } finally {
      database.close();
    }
  }

  async #countInstances(): Promise<void> {
    if (this.#isServerAway) return;
    const count = this.#rows().length;
    this.#mostInstances = Math.max(this.#mostInstances, count);
    const { functions, instancesEach } = this.#options;
    // Instances whose end is being recorded do not count towards the maximum.
    if (count > functions * instancesEach * 2) this.#faults.push(`${count} instances are recorded`);
  }

  async #killServer(): Promise<{ adopted: number; before: number }> {
    this.#isServerAway = true;
    this.#serverKills += 1;
    const before = new Set(this.#rows().map(({ id }) => id));
    await this.#bed.killAndRestart();
    const adopted = this.#rows().filter(({ id }) => before.has(id)).length;
    await delay(200);
    this.#isServerAway = false;
    return { adopted, before: before.size };
  }

  /** Checks that every asynchronous call ends: as its function does, or lost with its instance or server. */
  async #checkAsync(): Promise<void> {
    const deadlineMs = performance.now() + 60_000;
    for (const id of this.#asyncIds) {
      for (;;) {
        const { body } = await this.#bed.ask('GET', `/serverless/v1/functions/async-results/${id}`);
        if (body.status === 'completed') break;
        if (body.status === 'failed') {
          const { code } = body.error as { code: number };
          if (![4002, 150427].includes(code) && !JSON.stringify(body).includes('get_stream'))
            this.#faults.push(`async ${id}: ${JSON.stringify(body)}`);
          break;
        }
        if (performance.now() > deadlineMs) {
          this.#faults.push(`async ${id} is still ${String(body.status)}`);
          return;
        }
        await delay(50);
      }
    }
  }

  /** Waits until no instance is left, because every function returns to its minimum. */
  async #quiet(): Promise<void> {
    const deadlineMs = performance.now() + 30_000;
    while (this.#rows().length > 0) {
      if (performance.now() > deadlineMs) {
        this.#faults.push(`${this.#rows().length} instances do not end`);
        return;
      }
      await delay(100);
    }
  }

  /** Returns the memory as soon as it is at most `wantedMb`, else the last value after the wait. */
  async #memoryAtRest(wantedMb: number): Promise<Memory> {
    const untilMs = performance.now() + MEMORY_REST_MS;
    for (;;) {
      const memory = this.#memory();
      if (memory.rssMb <= wantedMb || performance.now() > untilMs) return memory;
      await delay(500);
    }
  }

  #memory(): Memory {
    const status = readFileSync(`/proc/${this.#bed.server.pid}/status`, 'utf8');
    return { rssMb: Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024) };
  }
}

function newAgent(): Agent {
  return new Agent({ connections: 512, headersTimeout: 60_000, bodyTimeout: 60_000 });
}

function handlerOf(index: number): (typeof HANDLERS)[number] {
  return HANDLERS[index % HANDLERS.length] ?? 'quick';
}

function urnOf(index: number): string {
  return `sn:cn:yrk:default:function:0@soak@f${index}:$latest`;
}

function random(below: number): number {
  return Math.floor(Math.random() * below);
}

function databaseOf(bed: Bed): string {
  return join(bed.server.dataDir, 'rookery.db');
}
