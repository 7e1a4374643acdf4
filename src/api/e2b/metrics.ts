import type { AgentInstances } from '../../agents/contract.ts';
import type { Instance } from '../../core/instance.ts';
import { MEBIBYTE } from '../../core/units.ts';
import { Interval } from '../../lib/interval.ts';
import type { EnvdMetrics } from '../envd/envd.ts';
import { cpuCountOf } from './answers.ts';

/** The use of resources of a sandbox at one time. */
export interface SandboxUse extends EnvdMetrics {
  readonly timestampMs: number;
}

export interface SandboxMetricsOptions {
  readonly instances: Pick<AgentInstances, 'liveSandboxes' | 'stats'>;
  readonly intervalMs?: number;
  readonly now?: () => number;
}

/** A measurement of a sandbox at one time. */
interface Sample {
  readonly timestampMs: number;
  readonly cpuMicros: number;
  readonly cpuUsedPct: number;
  readonly memoryBytes: number;
}

const INTERVAL_MS = 5_000;
/** Samples that are kept of each sandbox: one hour. */
const MAX_SAMPLES = 720;
/** Least time between two samples from which a use of processors is computed. */
const MIN_SPAN_MS = 200;

/** Measures the sandboxes of this node at intervals, and keeps the last hour of each. */
export class SandboxMetrics {
  readonly #options: SandboxMetricsOptions;
  readonly #now: () => number;
  readonly #samples = new Map<string, Sample[]>();
  readonly #interval: Interval;

  constructor(options: SandboxMetricsOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#interval = new Interval(options.intervalMs ?? INTERVAL_MS, () => this.measure());
  }

  start(): void {
    this.#interval.start();
  }

  async close(): Promise<void> {
    await this.#interval.close();
  }

  /** Measures all sandboxes once, and drops the samples of those that are gone. Never rejects. */
  async measure(): Promise<void> {
    const live = this.#options.instances.liveSandboxes();
    const ids = new Set(live.map(({ id }) => id));
    for (const id of this.#samples.keys()) if (!ids.has(id)) this.#samples.delete(id);
    for (const { tenant, id } of live) {
      if (this.#interval.isClosed) return;
      await this.#sample(tenant, id);
    }
  }

  /**
   * Returns the samples of a sandbox in a time, oldest first, in milliseconds since 1970; null: no bound.
   * A sandbox without a sample is measured now.
   */
  async history(instance: Instance, fromMs: number | null, toMs: number | null): Promise<readonly SandboxUse[]> {
    if (!this.#samples.has(instance.id)) await this.#sample(instance.spec.tenant, instance.id);
    const samples = this.#samples.get(instance.id) ?? [];
    return samples
      .filter(({ timestampMs }) => (fromMs === null || timestampMs >= fromMs) && (toMs === null || timestampMs <= toMs))
      .map(sample => this.#use(instance, sample));
  }

  /** Measures a sandbox now. Fails as `stats` does. */
  async current(instance: Instance): Promise<SandboxUse> {
    const sample = await this.#measured(instance.spec.tenant, instance.id);
    return this.#use(instance, sample);
  }

  async #sample(tenant: string, id: string): Promise<void> {
    const sample = await this.#measured(tenant, id).catch(() => null);
    if (sample === null) return;
    const samples = this.#samples.get(id) ?? [];
    samples.push(sample);
    if (samples.length > MAX_SAMPLES) samples.shift();
    this.#samples.set(id, samples);
  }

  async #measured(tenant: string, id: string): Promise<Sample> {
    const { cpuMicros, memoryBytes } = await this.#options.instances.stats(tenant, id);
    const timestampMs = this.#now();
    const before = this.#samples.get(id)?.findLast(({ timestampMs: at }) => timestampMs - at >= MIN_SPAN_MS);
    const spanMs = before === undefined ? 0 : timestampMs - before.timestampMs;
    const usedMs = before === undefined ? 0 : Math.max(0, cpuMicros - before.cpuMicros) / 1000;
    return { timestampMs, cpuMicros, memoryBytes, cpuUsedPct: spanMs === 0 ? 0 : (100 * usedMs) / spanMs };
  }

  #use(instance: Instance, { timestampMs, cpuUsedPct, memoryBytes }: Sample): SandboxUse {
    return {
      timestampMs,
      cpuCount: cpuCountOf(instance),
      cpuUsedPct: Math.round(cpuUsedPct * 100) / 100,
      memTotal: instance.spec.memoryMb * MEBIBYTE,
      memUsed: memoryBytes,
      memCache: 0,
      diskUsed: 0,
      // Files of a sandbox are in its memory.
      diskTotal: instance.spec.memoryMb * MEBIBYTE,
    };
  }
}

/** Returns a sample as the protocol shows it. */
export function useView({ timestampMs, ...use }: SandboxUse): Record<string, unknown> {
  const seconds = Math.floor(timestampMs / 1000);
  return { timestamp: new Date(seconds * 1000).toISOString(), timestampUnix: seconds, ...use };
}
