import { setImmediate as nextTurn } from 'node:timers/promises';
import { messageOf } from '../core/error.ts';
import type { CallSink, FinishedCall } from '../core/finished-call.ts';
import { endsWithin } from '../lib/deadline.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import type { Database } from '../storage/database.ts';
import { dropCalls, insertCalls, tenantsWithCalls } from '../storage/queries/calls.ts';
import type { NewCall } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { CallRecordings } from './call-recordings.ts';
import { bytesOf, CallRing, type CallRules } from './call-ring.ts';
import { type CallRowOptions, toCallRow } from './call-rows.ts';
import { SecretValues } from './secret-values.ts';

export interface CallHistoryOptions extends CallRowOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly rules: CallRules;
  readonly keepMs: number;
  readonly maxBytesPerTenant: number;
  /** Returns `<namespace>/<name>` of an agent; `''` if it is deleted. */
  readonly nameOfAgent: (id: string) => Promise<string>;
  /** Returns the values of a tenant's secrets, which no record shows. */
  readonly secretsOf: (tenant: string) => Promise<Iterable<string>>;
  readonly log: Log;
  /** Returns epoch milliseconds; default: the system clock. */
  readonly now?: () => number;
  /** Most calls that wait to be written; default 4096. */
  readonly maxWaiting?: number;
}

/** Numbers of calls since the start, by what became of their records. */
export interface CallHistoryCounts {
  readonly written: number;
  /** Left a full buffer because the database was too slow. */
  readonly dropped: number;
  /** The database refused them. */
  readonly failed: number;
}

/** Time that a call waits at most before it is written: a killed service loses no more than a second. */
const WRITE_MS = 500;
const MAX_WAITING = 4096;
const MAX_WAITING_BYTES = 16 * 1024 * 1024;
/** Calls that one turn of the event loop turns into records. Calls of users run between two turns. */
const TURN_CALLS = 25;
/** Bytes of inputs, outputs and spans that one turn turns into records. */
const TURN_BYTES = 256 * 1024;
/** Calls of one write operation. */
const WRITE_CALLS = 200;
const SWEEP_MS = 60_000;
/** Bytes of records after which a sweep does not wait for its time. */
const SWEEP_BYTES = 32 * 1024 * 1024;
const SWEPT_AT_ONCE = 500;
const CLOSE_MS = 5000;

/** Secrets of tenants and names of agents that one write operation has read. */
interface Known {
  readonly secrets: Map<string, SecretValues>;
  readonly names: Map<string, string>;
}

/**
 * The history of calls. Calls enter a ring in memory, and a timer writes them in groups. No call waits for
 * it, and a database that fails or is slow costs records only.
 */
export class CallHistory {
  readonly #options: CallHistoryOptions;
  readonly #ring: CallRing;
  readonly #sweeper: Interval;
  /** Agents and functions whose calls are all recorded. */
  readonly recordings: CallRecordings;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;
  #hasFailed = false;
  #isClosed = false;
  #written = 0;
  #dropped = 0;
  #failed = 0;
  /** Bytes of records since the last sweep. */
  #unsweptBytes = 0;

  constructor(options: CallHistoryOptions) {
    const { rules, bodyBytes, maxWaiting = MAX_WAITING } = options;
    this.#options = options;
    this.#ring = new CallRing({
      rules,
      bodyBytes,
      maxCalls: maxWaiting,
      maxBytes: MAX_WAITING_BYTES,
      filled: () => this.#schedule(),
    });
    this.#sweeper = new Interval(SWEEP_MS, () => this.sweep());
    this.recordings = new CallRecordings({ ...options, apply: targets => this.#ring.record(targets) });
  }

  /** Receives calls on their path. */
  get sink(): CallSink {
    return this.#ring;
  }

  get counts(): CallHistoryCounts {
    this.#dropped += this.#ring.drainDropped();
    return { written: this.#written, dropped: this.#dropped, failed: this.#failed };
  }

  async start(): Promise<void> {
    await this.recordings.start();
    this.#sweeper.start();
  }

  /** Writes what waits, for a few seconds at most. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.recordings.close();
    await this.#sweeper.close();
    await endsWithin(this.flush(), CLOSE_MS);
  }

  /** Writes the calls that wait now. Never rejects. */
  async flush(): Promise<void> {
    await this.#writing;
    this.#writing = this.#write().finally(() => {
      this.#writing = undefined;
    });
    await this.#writing;
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#isClosed) return;
    this.#timer = setTimeout(() => {
      void this.flush().then(() => {
        this.#timer = undefined;
        if (this.#ring.size > 0) this.#schedule();
      });
    }, WRITE_MS).unref();
  }

  async #write(): Promise<void> {
    const writes: Promise<void>[] = [];
    const known: Known = { secrets: new Map(), names: new Map() };
    for (let left = this.#ring.size; left > 0; left -= WRITE_CALLS) {
      const calls = this.#ring.shiftMany(Math.min(left, WRITE_CALLS));
      try {
        const rows = await this.#rowsOf(calls, known);
        writes.push(this.#insert(rows));
      } catch (error) {
        this.#fail(calls.length, error);
      }
    }
    await Promise.all(writes);
  }

  async #rowsOf(calls: readonly FinishedCall[], known: Known): Promise<readonly NewCall[]> {
    const { secretsOf, nameOfAgent } = this.#options;
    const rows: NewCall[] = [];
    let turn = { calls: 0, bytes: 0 };
    for (const call of calls) {
      const { tenant, kind, target } = call;
      const secrets = known.secrets.get(tenant) ?? new SecretValues(await secretsOf(tenant));
      known.secrets.set(tenant, secrets);
      const agentName = kind === 'agent' ? (known.names.get(target) ?? (await nameOfAgent(target))) : '';
      known.names.set(target, agentName);
      rows.push(toCallRow(call, this.#options, { secrets, agentName }));
      turn = { calls: turn.calls + 1, bytes: turn.bytes + bytesOf(call) };
      if (turn.calls < TURN_CALLS && turn.bytes < TURN_BYTES) continue;
      await nextTurn();
      turn = { calls: 0, bytes: 0 };
    }
    return rows;
  }

  async #insert(rows: readonly NewCall[]): Promise<void> {
    try {
      await this.#options.writes.write(insertCalls, rows);
      this.#written += rows.length;
      this.#unsweptBytes += rows.reduce((sum, { bytes }) => sum + bytes, 0);
      if (this.#unsweptBytes > SWEEP_BYTES) await this.sweep();
      this.#hasFailed = false;
    } catch (error) {
      this.#fail(rows.length, error);
    }
  }

  #fail(calls: number, error: unknown): void {
    this.#failed += calls;
    // A full disk would fill the log too.
    if (!this.#hasFailed) this.#options.log.warn({ reason: messageOf(error) }, 'cannot record calls');
    this.#hasFailed = true;
  }

  /** Deletes calls that are too old, and the oldest calls of tenants with too many bytes. Never rejects. */
  async sweep(): Promise<void> {
    const { database, writes, keepMs, maxBytesPerTenant, log, now = Date.now } = this.#options;
    this.#unsweptBytes = 0;
    try {
      const beforeMs = now() - keepMs;
      for (const tenant of await tenantsWithCalls(database)) {
        for (let dropped = SWEPT_AT_ONCE; dropped === SWEPT_AT_ONCE && !this.#isClosed; ) {
          dropped = await writes.write(dropCalls, tenant, beforeMs, maxBytesPerTenant, SWEPT_AT_ONCE);
        }
      }
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'cannot remove old calls');
    }
  }
}
