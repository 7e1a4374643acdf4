import type { CallRecording, RecordedTarget } from '../core/call-recording.ts';
import { messageOf, notFound, resourceExhausted } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import type { Database } from '../storage/database.ts';
import { findAgent } from '../storage/queries/agents.ts';
import { deleteCallRecording, listCallRecordings, putCallRecording } from '../storage/queries/call-recordings.ts';
import { hasVersion, LATEST } from '../storage/queries/functions.ts';
import type { CallRecordingTable } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { RecordedTargets } from './recorded-targets.ts';

export interface CallRecordingsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Receives the recordings that have not ended; null: there are none. */
  readonly apply: (targets: RecordedTargets | null) => void;
  readonly log: Log;
  readonly now?: () => number;
}

/** A missed notification of another replica costs this time at most. */
const RELOAD_MS = 30_000;

/** Agents and functions whose calls are all recorded for a time, without sampling. */
export class CallRecordings {
  readonly #options: CallRecordingsOptions;
  readonly #now: () => number;
  readonly #reloader: Interval;
  #reloading: Promise<void> = Promise.resolve();

  constructor(options: CallRecordingsOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#reloader = new Interval(RELOAD_MS, () => this.reload());
  }

  async start(): Promise<void> {
    await this.reload();
    this.#reloader.start();
  }

  async close(): Promise<void> {
    await this.#reloader.close();
    await this.#reloading;
  }

  /** Reads all recordings anew, also those of other replicas. Never rejects. */
  reload(): Promise<void> {
    this.#reloading = this.#reloading.then(() => this.#load());
    return this.#reloading;
  }

  /**
   * Records all calls from now on, for `durationMs`. Fails with `not_found` if the agent or function does not
   * exist, and with `resource_exhausted` if the tenant has too many recordings.
   */
  async put(tenant: string, { kind, target }: RecordedTarget, durationMs: number): Promise<CallRecording> {
    await this.#check(tenant, { kind, target });
    const startedAtMs = this.#now();
    const row = { tenant, kind, target, started_at_ms: startedAtMs, ends_at_ms: startedAtMs + durationMs };
    const begun = await this.#options.writes.write(putCallRecording, row, LIMITS.recordingsPerTenant);
    if (begun === null) {
      const most = LIMITS.recordingsPerTenant;
      throw resourceExhausted(`there are ${most} recordings of calls already; stop one first`);
    }
    await this.reload();
    return toRecording({ ...row, started_at_ms: begun });
  }

  /** Returns the tenant's recordings that have not ended. */
  async list(tenant: string): Promise<readonly CallRecording[]> {
    const nowMs = this.#now();
    const rows = await listCallRecordings(this.#options.database, tenant);
    return rows.map(toRecording).filter(({ endsAtMs }) => endsAtMs > nowMs);
  }

  /** Ends a recording. Fails with `not_found` if there is none. */
  async remove(tenant: string, { kind, target }: RecordedTarget): Promise<void> {
    const key = { tenant, kind, target };
    const isDeleted = await this.#options.writes.write(deleteCallRecording, key, this.#now());
    await this.reload();
    if (!isDeleted) throw notFound(`no recording of the calls of ${kind} ${target}`);
  }

  async #load(): Promise<void> {
    const { database, apply, log } = this.#options;
    try {
      const nowMs = this.#now();
      const recordings = (await listCallRecordings(database, null))
        .map(row => ({ ...toRecording(row), tenant: row.tenant }))
        .filter(({ endsAtMs }) => endsAtMs > nowMs);
      apply(recordings.length === 0 ? null : new RecordedTargets(recordings));
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'cannot read recordings of calls; retrying');
    }
  }

  async #check(tenant: string, { kind, target }: RecordedTarget): Promise<void> {
    const { database } = this.#options;
    const exists =
      kind === 'agent'
        ? (await findAgent(database, target))?.stored.tenant === tenant
        : await hasVersion(database, { tenant, name: target, version: LATEST });
    if (!exists) throw notFound(`${kind} not found: ${target}`);
  }
}

function toRecording({ kind, target, started_at_ms, ends_at_ms }: CallRecordingTable): CallRecording {
  return { kind, target, startedAtMs: Number(started_at_ms), endsAtMs: Number(ends_at_ms) };
}
