import { messageOf } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { nextRestart } from '../core/restart-policy.ts';
import type { ExitPatch, InstanceLog } from '../instances/contract.ts';
import { restartFailed } from '../instances/refusals.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { afterMs } from '../lib/long-timer.ts';
import { findAgent, listPlannedRestarts } from '../storage/agents.ts';
import type { Database } from '../storage/database.ts';
import { type InstanceRef, type StoredInstance, updateInstance } from '../storage/instances.ts';
import { untilWritten } from '../storage/until-written.ts';

export interface PolicyRestartsOptions {
  readonly database: Database;
  readonly nodeId: string;
  readonly log: InstanceLog;
  readonly now: () => number;
  /** Restarts it; rejects when it could not be. */
  readonly restart: (record: StoredInstance) => Promise<unknown>;
  /** Whether it is being restarted or deleted. */
  readonly isBusy: (id: string) => boolean;
  /** Why none can be started at this moment; undefined: one can. */
  readonly refusal: () => unknown;
  readonly restarted?: (outcome: 'restarted' | 'failed') => void;
}

const TRY_AGAIN_MS = 1_000;

/**
 * Starts agents again that ended by themselves, as their restart policies say. Which restart is due when stands in the row, written together with
 * the end: whoever looks after the row goes on with it, a service that comes back or the heir of a lost node. A delete and a restart by
 * somebody else end the waiting, because they change the row. A database that is away holds a restart up and does not end it.
 */
export class PolicyRestarts {
  readonly #options: PolicyRestartsOptions;
  /** Those that wait, and how to cancel that. */
  readonly #waiting = new Map<string, () => void>();
  /** Those that are started at this moment, until it is written what follows when that fails. */
  readonly #starting = new Set<string>();
  readonly #closing = new AbortController();

  constructor(options: PolicyRestartsOptions) {
    this.#options = options;
  }

  /** Goes on with what rows say that nobody here waits for: an earlier server or a lost node began it, or died while it was at it. */
  async resume(): Promise<void> {
    const { database, nodeId, isBusy } = this.#options;
    if (this.#closing.signal.aborted) return;
    for (const stored of await listPlannedRestarts(database, nodeId)) {
      const { id } = stored;
      if (!this.#waiting.has(id) && !this.#starting.has(id) && !isBusy(id)) this.#wait(stored);
    }
  }

  /** Nothing is started any more. What is due stands in the rows, for the service that comes after this one. */
  close(): void {
    this.#closing.abort();
    for (const cancel of this.#waiting.values()) cancel();
    this.#waiting.clear();
  }

  /** Somebody deletes or restarts it. */
  cancel(id: string): void {
    this.#waiting.get(id)?.();
    this.#waiting.delete(id);
  }

  /** What its row says from its end on, also when this service is about to end: whether it starts again, and when. `exitCode` null: nobody knows one. */
  planned(record: InstanceRecord, reason: string, exitCode: number | null): ExitPatch {
    const ranMs = Math.max(0, this.#options.now() - record.startedAtMs);
    return this.#plan(record, reason, { exitCode, ranMs }) ?? {};
  }

  /** Its sandbox ended by itself, and its row says what follows. Never rejects. */
  async ended({ id, epoch }: InstanceRef): Promise<void> {
    try {
      const stored = await this.#find(id);
      if (stored?.epoch === epoch && isPlanned(stored)) this.#wait(stored);
    } catch (error) {
      this.#givesUp(id, error);
    }
  }

  /** Undefined: it stays as it is. */
  #plan(
    { spec, restartsInRow }: Pick<StoredInstance, 'spec' | 'restartsInRow'>,
    reason: string,
    end: { readonly exitCode: number | null; readonly ranMs: number },
  ): ExitPatch | undefined {
    const { restartPolicy } = JSON.parse(spec) as InstanceSpec;
    const next = nextRestart(restartPolicy, { ...end, restartsInRow });
    if (next === null) return undefined;
    if (next === 'enough') {
      const statusReason = `${reason}; it was restarted ${restartsInRow} times in a row, which is as often as its restart policy allows`;
      return { statusReason, restartAtMs: 0 };
    }
    return { restartAtMs: this.#options.now() + next.pauseMs, restartsInRow: next.inRow };
  }

  #wait(stored: StoredInstance, pauseMs = stored.restartAtMs - this.#options.now()): void {
    const { id } = stored;
    this.cancel(id);
    if (this.#closing.signal.aborted) return;
    const cancel = afterMs(pauseMs, () => {
      if (this.#waiting.get(id) === cancel) this.#waiting.delete(id);
      void this.#restart(stored);
    });
    this.#waiting.set(id, cancel);
  }

  async #restart({ id, epoch }: InstanceRef): Promise<void> {
    const { log, restart, isBusy, refusal } = this.#options;
    this.#starting.add(id);
    try {
      const stored = await this.#find(id);
      // Deleted, or restarted by somebody.
      const isDue = stored?.epoch === epoch && isPlanned(stored);
      if (!isDue || this.#closing.signal.aborted) return;
      if (isBusy(id) || refusal() !== undefined) {
        this.#wait(stored, TRY_AGAIN_MS);
        return;
      }
      log.info({ instanceId: id, restart: stored.restartsInRow }, 'an agent is restarted by its policy');
      await restart(stored);
      this.#options.restarted?.('restarted');
    } catch (error) {
      log.warn({ instanceId: id, reason: messageOf(error) }, 'a restart by the policy of an agent failed');
      this.#options.restarted?.('failed');
      await this.#failed(id, error);
    } finally {
      this.#starting.delete(id);
    }
  }

  /**
   * A start that failed counts as a restart like one that ended at once; one that a service cut off by its own end does not. Nobody was answered
   * why: its row says it.
   */
  async #failed(id: string, why: unknown): Promise<void> {
    try {
      const stored = await this.#find(id);
      if (stored === undefined || !isPlanned(stored) || this.#closing.signal.aborted) return;
      const statusReason = restartFailed(why);
      const plan = this.#plan(stored, statusReason, { exitCode: null, ranMs: 0 });
      if (plan === undefined || !(await this.#write(stored, { statusReason, ...plan }))) return;
      const next = { ...stored, ...plan };
      if (isPlanned(next)) this.#wait(next);
    } catch (error) {
      this.#givesUp(id, error);
    }
  }

  /** Undefined: there is none, or another node has taken it over. */
  async #find(id: string): Promise<StoredInstance | undefined> {
    const { database, nodeId } = this.#options;
    const agent = await this.#untilDone(id, () => findAgent(database, id));
    return agent?.stored.nodeId === nodeId ? agent.stored : undefined;
  }

  /** False: its row is about something newer. */
  #write(stored: StoredInstance, changes: ExitPatch): Promise<boolean> {
    return this.#untilDone(stored.id, () => updateInstance(this.#options.database, stored, ['FAILED'], changes));
  }

  #untilDone<T>(id: string, work: () => Promise<T>): Promise<T> {
    return untilWritten(work, this.#closing.signal, error => {
      const reason = messageOf(error);
      this.#options.log.warn({ instanceId: id, reason }, 'a restart by the policy of an agent waits for the database');
    });
  }

  /** A service that ends leaves the restart to the one after it. */
  #givesUp(id: string, error: unknown): void {
    if (this.#closing.signal.aborted) return;
    this.#options.log.warn({ instanceId: id, err: error }, 'an agent could not be restarted as its policy says');
  }
}

function isPlanned({ status, restartAtMs }: StoredInstance): boolean {
  return status === 'FAILED' && restartAtMs > 0;
}
