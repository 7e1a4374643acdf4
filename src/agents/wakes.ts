import { messageOf, ServiceError } from '../core/error.ts';
import type { Instance } from '../core/instance.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { type Backoff, backoffMs } from '../lib/backoff.ts';
import type { WakeReason } from '../runtime/protocol.ts';
import { type AgentRecords, isDurable, toInstance } from './agent-records.ts';
import type { AgentStarts } from './agent-starts.ts';
import type { Operation } from './agent-table.ts';
import { endsAgain, isAsleep, isBeing, startsLater } from './refusals.ts';
import { STATE_UNSAVED } from './states.ts';

/** Pauses after starts that failed. */
const RETRY: Backoff = { firstMs: 1000, longestMs: 60_000 };
/** An agent that ends within this time of its start, this many times in a row, is in a crash loop. */
const QUICK_END_MS = 60_000;
const QUICK_ENDS = 3;
/** Failures that say nothing about the agent: no room, and a delete meanwhile. */
const NOT_OWN: readonly string[] = ['resource_exhausted', 'already_exists', 'not_found'];

/** Live agent, and the reason of the start that its use has caused or waited for. */
export interface Reached {
  readonly live: LiveInstance;
  readonly woke?: WakeReason;
}

/** Use of an agent that is not live. */
export interface Use {
  readonly reason: WakeReason;
  /** True if a sleeping agent must stay asleep. */
  readonly isBarred?: boolean;
}

interface AgentWakesOptions {
  readonly starts: AgentStarts;
  readonly records: AgentRecords;
  readonly live: (id: string) => LiveInstance | undefined;
  readonly restart: (id: string, reason: WakeReason) => Promise<Instance>;
  readonly now: () => number;
}

/** Starts durable agents that have ended or sleep, with their saved state, when a client uses them. */
export class AgentWakes {
  readonly #options: AgentWakesOptions;

  constructor(options: AgentWakesOptions) {
    this.#options = options;
  }

  /** Returns true if a use of the agent starts it, or waits for the start that runs. */
  canWake(record: InstanceRecord): boolean {
    const doing = this.#options.starts.operations.of(record.id)?.kind;
    const isChanging = doing === 'restart' || doing === 'sleep' || doing === 'update';
    if (record.status !== 'FAILED' && record.status !== 'SLEEPING' && !isChanging) return false;
    return toInstance(record).spec.durable !== undefined;
  }

  /**
   * Starts the agent and returns its live instance; undefined: it has ended again. All concurrent callers
   * share one start and continue in their order. Fails as a restart does, or with `Asleep`.
   */
  async wake(record: InstanceRecord, { reason, isBarred }: Use): Promise<Reached | undefined> {
    if (isBarred && record.status === 'SLEEPING') throw isAsleep(record.id);
    const { starts, records, live, restart } = this.#options;
    const { id } = record;
    records.assertHere(record);
    await this.changeEnded(id);
    if (live(id) === undefined) {
      const before = starts.operations.of(id);
      if (before === undefined) {
        this.#assertMayRetry(id);
        starts.assertMayStart();
        // Each caller, this one too, waits for the operation itself, so that they continue in their order.
        restart(id, reason).catch(error => this.#noteFailure(id, error));
      } else if (before.kind !== 'restart') throw isBeing(before.kind, id);
      await starts.operations.of(id)?.done;
    }
    const found = live(id);
    return found && { live: found, woke: record.status === 'FAILED' ? 'crash' : reason };
  }

  #assertMayRetry(id: string): void {
    const failed = this.#options.starts.table.get(id)?.failedWakes;
    const waitMs = failed === undefined ? 0 : failed.retryAtMs - performance.now();
    if (failed !== undefined && waitMs > 0) throw startsLater(id, failed.reason, Math.ceil(waitMs / 1000));
  }

  /** Delays the next start, unless this one lacked room or was ended by a delete or a stop. */
  #noteFailure(id: string, error: unknown): void {
    const { table, isStopping } = this.#options.starts;
    const isOwn = !(error instanceof ServiceError) || !NOT_OWN.includes(error.code);
    if (!isOwn || isStopping) return;
    this.#retryLater(id, (table.get(id)?.failedWakes?.count ?? 0) + 1, messageOf(error));
  }

  /**
   * Delays the next start of a durable agent in a crash loop. A successful call and a restart by a client end
   * the loop. An end because of a failed save says nothing about the agent.
   */
  noteEnd({ id, epoch, spec, startedAtMs }: InstanceRecord, reason: string): void {
    if (this.#options.now() - startedAtMs >= QUICK_END_MS || reason.startsWith(STATE_UNSAVED)) return;
    if (!isDurable({ spec })) return;
    const { table } = this.#options.starts;
    const before = table.get(id)?.quickEnds;
    // The write of one end may be repeated.
    if (before?.epoch === epoch) return;
    const count = (before?.count ?? 0) + 1;
    table.set(id, { quickEnds: { epoch, count } });
    if (count >= QUICK_ENDS) this.#retryLater(id, count - QUICK_ENDS + 1, endsAgain(count, reason));
  }

  #retryLater(id: string, count: number, reason: string): void {
    const retryAtMs = performance.now() + backoffMs(RETRY, count);
    this.#options.starts.table.set(id, { failedWakes: { count, reason, retryAtMs } });
  }

  /** Resolves when the agent neither falls asleep nor is changed, or not any more. Never rejects. */
  async changeEnded(id: string): Promise<void> {
    const { operations } = this.#options.starts;
    for (let doing = operations.of(id); isShort(doing); doing = operations.of(id))
      await doing.done.catch(() => undefined);
  }
}

/** Returns true for an operation for whose end a use waits. */
function isShort(operation: Operation | undefined): operation is Operation {
  return operation?.kind === 'sleep' || operation?.kind === 'update';
}
