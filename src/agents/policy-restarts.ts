import { messageOf } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { nextRestart } from '../core/restart-policy.ts';
import type { InstanceLog } from '../instances/contract.ts';
import { restartFailed } from '../instances/refusals.ts';
import { afterMs } from '../lib/long-timer.ts';
import { findAgent, listAgentsOfNode } from '../storage/agents.ts';
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
  /** Why none can be started at this moment; undefined: one can. */
  readonly refusal: (id: string) => unknown;
  readonly restarted?: (outcome: 'restarted' | 'failed') => void;
}

const TRY_AGAIN_MS = 1_000;

/**
 * Starts agents again that ended by themselves, as their restart policies say. Which restart is due when stands in the row: a service that
 * comes back goes on with it. A delete and a restart by somebody else end the waiting, because they change the row. A database that is away
 * holds a restart up and does not end it.
 */
export class PolicyRestarts {
  readonly #options: PolicyRestartsOptions;
  /** Those that wait, and how to cancel that. */
  readonly #waiting = new Map<string, () => void>();
  readonly #closing = new AbortController();

  constructor(options: PolicyRestartsOptions) {
    this.#options = options;
  }

  /** After everything that runs was adopted: goes on with what an earlier server had begun. */
  async resume(): Promise<void> {
    const { database, nodeId, now } = this.#options;
    for (const stored of await listAgentsOfNode(database, nodeId)) {
      if (stored.status === 'FAILED' && stored.restartAtMs > 0) this.#wait(stored, stored.restartAtMs - now());
    }
  }

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

  /** Its sandbox ended by itself, which its row says already; `exitCode` null: nobody knows one. Never rejects. */
  async ended({ id, epoch }: InstanceRef, exitCode: number | null): Promise<void> {
    try {
      const stored = await this.#find(id);
      if (stored?.epoch !== epoch || stored.status !== 'FAILED') return;
      await this.#plan(stored, exitCode, Math.max(0, this.#options.now() - stored.startedAtMs));
    } catch (error) {
      this.#givesUp(id, error);
    }
  }

  async #plan(stored: StoredInstance, exitCode: number | null, ranMs: number): Promise<void> {
    const { restartPolicy } = JSON.parse(stored.spec) as InstanceSpec;
    const next = nextRestart(restartPolicy, { exitCode, ranMs, restartsInRow: stored.restartsInRow });
    if (next === null || this.#closing.signal.aborted) return;
    if (next === 'enough') {
      const statusReason = `${stored.statusReason}; it was restarted ${stored.restartsInRow} times in a row, which is as often as its restart policy allows`;
      await this.#write(stored, { statusReason, restartAtMs: 0 });
      return;
    }
    const { statusReason } = stored;
    const planned = { statusReason, restartAtMs: this.#options.now() + next.pauseMs, restartsInRow: next.inRow };
    if (await this.#write(stored, planned)) this.#wait({ ...stored, ...planned }, next.pauseMs);
  }

  #wait(stored: StoredInstance, pauseMs: number): void {
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
    const { log, restart, refusal } = this.#options;
    try {
      const stored = await this.#find(id);
      // Deleted, or restarted by somebody.
      const isDue = stored?.epoch === epoch && stored.status === 'FAILED' && stored.restartAtMs > 0;
      if (!isDue || this.#closing.signal.aborted) return;
      if (refusal(id) !== undefined) {
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
    }
  }

  /** A start that failed counts as a restart like one that ended at once. Nobody was answered why: its row says it. */
  async #failed(id: string, why: unknown): Promise<void> {
    try {
      const stored = await this.#find(id);
      if (stored?.status !== 'FAILED' || stored.restartAtMs === 0) return;
      await this.#plan({ ...stored, statusReason: restartFailed(why) }, null, 0);
    } catch (error) {
      this.#givesUp(id, error);
    }
  }

  #find(id: string): Promise<StoredInstance | undefined> {
    return this.#untilDone(id, async () => (await findAgent(this.#options.database, id))?.stored);
  }

  /** False: its row is about something newer. */
  #write(stored: StoredInstance, changes: Parameters<typeof updateInstance>[3]): Promise<boolean> {
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
