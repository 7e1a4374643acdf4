import { loggable, messageOf } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import type { Instances } from '../instances/instances.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { pause } from '../lib/backoff.ts';
import type { Log } from '../lib/log.ts';
import { newRequestId } from '../lib/random-ids.ts';
import { type AgentRecords, isDurable } from './agent-records.ts';
import type { AgentStarts } from './agent-starts.ts';
import type { SleepRequest } from './contract.ts';
import type { AgentsOptions } from './options.ts';
import { InUse, isBeing, notDurable, notRunning, serverStopping } from './refusals.ts';

/** Time of the sleep entry. */
const ENTRY_MS = 5_000;
/** Pause between two looks at the uses of an agent whose sleep waits for their end. */
const LOOK_AGAIN_MS = 50;

export interface AgentSleepsParts {
  readonly starts: AgentStarts;
  readonly records: AgentRecords;
  /** Returns the number of open commands, streams and other accesses. */
  readonly openAccesses: (id: string) => number;
  /** Stores the log of a sandbox that is about to be removed. Never rejects. */
  readonly storeLog: Parameters<Instances['sleep']>[1]['stopped'];
  /** Called when the agent takes no calls any more. */
  readonly stopped: (id: string) => void;
}

/** Puts durable agents to sleep: their sandboxes are removed, and a record with the saved state remains. */
export class AgentSleeps {
  readonly #instances: Instances;
  readonly #now: () => number;
  readonly #log: Log;
  readonly #files: AgentsOptions['files'];
  readonly #parts: AgentSleepsParts;

  constructor(options: AgentsOptions, parts: AgentSleepsParts) {
    this.#instances = options.instances;
    this.#now = options.now ?? Date.now;
    this.#log = options.log;
    this.#files = options.files;
    this.#parts = parts;
  }

  /** See `AgentInstances.sleep`. */
  async sleep(
    tenant: string,
    id: string,
    { waitMs = 0, isForced = false, signal }: SleepRequest = {},
  ): Promise<Instance> {
    const untilMs = performance.now() + waitMs;
    for (;;) {
      try {
        return await this.#sleepNow(tenant, id, isForced);
      } catch (error) {
        // A use may begin between the end of the wait and the sleep.
        if (!(error instanceof InUse) || signal?.aborted || performance.now() >= untilMs) throw error;
        await this.#usesEnded(id, untilMs, signal);
      }
    }
  }

  /** Resolves when nothing uses the agent, at `untilMs`, or when the service stops. Never rejects. */
  async #usesEnded(id: string, untilMs: number, signal?: AbortSignal): Promise<void> {
    do {
      await pause(Math.max(1, Math.min(LOOK_AGAIN_MS, untilMs - performance.now())), signal);
    } while (
      this.#usesOf(id).length > 0 &&
      performance.now() < untilMs &&
      !signal?.aborted &&
      !this.#parts.starts.isStopping
    );
  }

  async #sleepNow(tenant: string, id: string, isForced: boolean): Promise<Instance> {
    const { starts, records } = this.#parts;
    const running = starts.operations.of(id);
    if (running?.kind === 'sleep') await running.done.catch(() => undefined);
    if (starts.isStopping) throw serverStopping();
    const record = await records.flushedRecord(tenant, id);
    records.assertHere(record);
    if (record.status === 'STOPPING') throw instanceNotFound(id);
    if (!isDurable(record)) throw notDurable(id);
    const before = starts.operations.of(id);
    if (before !== undefined) throw isBeing(before.kind, id);
    if (record.status === 'SLEEPING') return await records.get(tenant, id);
    if (record.status !== 'PAUSED') await this.#assertRuns(record);
    const busy = starts.operations.of(id);
    if (busy !== undefined) throw isBeing(busy.kind, id);
    return await starts.operations.run(id, 'sleep', async () => {
      const excess = isForced ? undefined : await this.#files?.excess(id, JSON.parse(record.spec) as InstanceSpec);
      if (excess !== undefined) throw new InUse(id, [excess]);
      return await this.#putToSleep(record, isForced);
    });
  }

  /** Puts a RUNNING or PAUSED durable agent to sleep while the service stops. Fails if it is in use. */
  async sleepAtStop(id: string): Promise<void> {
    const { starts, records } = this.#parts;
    const record = await records.find(id);
    if (record === null) return;
    await starts.operations.run(id, 'sleep', async () => await this.#putToSleep(record));
  }

  /**
   * Puts an agent to sleep whose new calls wait, between two of its calls. The caller's operation locks it.
   * Fails as `sleep` does when something still uses it at `untilMs`.
   */
  async sleepLocked(record: InstanceRecord, untilMs: number, signal?: AbortSignal): Promise<void> {
    for (;;) {
      try {
        await this.#putToSleep(record);
        return;
      } catch (error) {
        if (!(error instanceof InUse) || signal?.aborted || performance.now() >= untilMs) throw error;
        await this.#usesEnded(record.id, untilMs, signal);
      }
    }
  }

  /** Fails with `failed_precondition` unless the agent runs. The sandbox in its record may be dead. */
  async #assertRuns(record: InstanceRecord): Promise<LiveInstance> {
    const live = this.#instances.live('agent', record.id);
    const found = live ?? (record.status === 'RUNNING' ? await this.#instances.adopt(record) : undefined);
    if (found === undefined) throw notRunning(record.id);
    return found;
  }

  async #putToSleep(record: InstanceRecord, isForced = false): Promise<Instance> {
    const { id, tenant } = record;
    const { starts, records, storeLog, stopped } = this.#parts;
    try {
      const lateCalls = isForced ? 0 : await this.#runEntry(record);
      await this.#instances.sleep(record, {
        sleptAtMs: this.#now(),
        assertIdle: () => {
          if (!isForced) this.#assertIdle(record, lateCalls);
        },
        stopped: storeLog,
      });
      starts.release(record);
    } finally {
      if (this.#instances.live('agent', id) === undefined) stopped(id);
    }
    return await records.get(tenant, id);
  }

  /**
   * Runs the sleep entry of an agent that is idle. Its failure does not keep the agent awake. Returns the
   * number of its calls that may still run.
   */
  async #runEntry(record: InstanceRecord): Promise<number> {
    const { id, spec } = record;
    const live = this.#instances.live('agent', id);
    if (live === undefined || (JSON.parse(spec) as InstanceSpec).durable?.entries?.sleep === undefined) return 0;
    this.#assertIdle(record);
    const requestId = newRequestId();
    const header = { traceId: requestId, traceparent: '', requestId, entry: 'sleep' } as const;
    try {
      const outcome = await live.call({ header, body: Buffer.from('null'), timeoutMs: ENTRY_MS });
      if (!outcome.ok) this.#log.warn({ instanceId: id, reason: loggable(outcome.text) }, 'sleep entry failed');
      return 0;
    } catch (error) {
      this.#log.warn({ instanceId: id, reason: messageOf(error) }, 'sleep entry did not end');
      return 1;
    }
  }

  /** Fails if anything uses the agent, in addition to `ownCalls` calls. */
  #assertIdle({ id, status }: InstanceRecord, ownCalls = 0): void {
    if (status === 'PAUSED') return;
    if (this.#instances.live('agent', id) === undefined) throw notRunning(id);
    const because = this.#usesOf(id, ownCalls);
    if (because.length > 0) throw new InUse(id, because);
  }

  /** Returns the uses of an agent as `awake_because` names them; none if it does not run. */
  #usesOf(id: string, ownCalls = 0): readonly string[] {
    const live = this.#instances.live('agent', id);
    if (live === undefined) return [];
    // Code may save at any time, so an agent that saves again counts as used.
    const saves = live.saving === undefined ? 0 : 1;
    const accesses = this.#parts.openAccesses(id);
    const keptSeconds = Math.ceil(live.keptAwakeMs / 1000);
    const kept = keptSeconds === 0 ? [] : [`keep_awake ${keptSeconds} s`];
    return [
      countOf('call', live.inFlight - ownCalls),
      countOf('access', accesses),
      countOf('save', saves),
      kept,
    ].flat();
  }
}

/** Returns a use as `awake_because` names it; nothing if there is none. */
function countOf(use: string, count: number): readonly string[] {
  return count <= 0 ? [] : [`${use} ${count}`];
}
