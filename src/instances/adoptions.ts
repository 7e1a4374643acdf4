import type { OwnerKind } from '../core/instance.ts';
import { within } from '../lib/deadline.ts';
import type { Channel } from '../runtime/channel.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import { ANSWER_MS, answerAtOnce, type Dead, reach } from './adopt.ts';
import type { InstancesOptions } from './contract.ts';
import type { LiveInstance } from './live-instance.ts';
import { notAnswering } from './refusals.ts';
import { type InstanceRecord, mayHavePorts } from './rows.ts';

/**
 * Time for which a recovered sandbox may stay silent before it is given up. A stalled machine delays healthy
 * ones.
 */
const SILENCE_MS = 30_000;

type Options = Pick<InstancesOptions, 'drivers' | 'log' | 'adoption'> & {
  /** Returns true while another operation works on the instance, or when nothing may become live any more. */
  readonly isTaken: (id: string) => boolean;
  /**
   * Called when the instance answers; it takes calls from now on. Returns undefined if its start was to be
   * undone.
   */
  readonly found: (
    record: InstanceRecord,
    driver: SandboxDriver,
    channel: Channel,
  ) => Promise<LiveInstance | undefined>;
  /** Called when no part of the sandbox runs any more. */
  readonly dead: (record: InstanceRecord, found: Dead) => Promise<void>;
  /** Called if an instance was neither reached nor given up: the next reconciler pass must find it. */
  readonly onLost: () => void;
};

interface Adoption {
  readonly kind: OwnerKind;
  /** Settles with the adoption; rejects if the adoption takes longer than `answerMs`. */
  readonly soon: Promise<LiveInstance | undefined>;
  /** Resolves when the adoption has ended. Never rejects. */
  readonly over: Promise<void>;
  readonly controller: AbortController;
}

/** Search for instances that an earlier server started. Concurrent callers share one search per instance. */
export class Adoptions {
  readonly #options: Options;
  readonly #running = new Map<string, Adoption>();

  constructor(options: Options) {
    this.#options = options;
  }

  /** Returns true while the instance is searched for, which may take longer than its callers wait. */
  isRunning(id: string): boolean {
    return this.#running.has(id);
  }

  /** Adopts an instance that is not live. The result is that of `Instances.adopt`. */
  adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    let adoption = this.#running.get(record.id);
    if (!adoption) {
      adoption = this.#begin(record);
      this.#running.set(record.id, adoption);
    }
    return adoption.soon;
  }

  /** Cancels the search for an instance. */
  abandon(id: string): void {
    this.#running.get(id)?.controller.abort();
  }

  /**
   * Cancels the searches for all instances of a kind and keeps their sandboxes. Returns the number of
   * searches.
   */
  async abandonAll(kind: OwnerKind): Promise<number> {
    const adoptions = [...this.#running.values()].filter(adoption => adoption.kind === kind);
    for (const { controller } of adoptions) controller.abort();
    await Promise.all(adoptions.map(({ over }) => over));
    return adoptions.length;
  }

  #begin(record: InstanceRecord): Adoption {
    const { id } = record;
    const { adoption = { answerMs: ANSWER_MS, silenceMs: SILENCE_MS }, log, onLost } = this.#options;
    const controller = new AbortController();
    const adopted = this.#reach(record, adoption.silenceMs, controller.signal).finally(() => this.#running.delete(id));
    let isLate = false;
    const soon = within(adopted, adoption.answerMs, () => {
      isLate = true;
      return notAnswering(id);
    });
    soon.catch(() => undefined);
    const over = adopted.then(
      live => {
        if (isLate && live) log.info({ instanceId: id }, 'instance answered late and is adopted');
      },
      (error: unknown) => {
        // A caller that waited receives this error. After `answerMs` only the log does.
        if (!isLate || controller.signal.aborted) return;
        log.warn({ instanceId: id, err: error }, 'adoption of instance failed');
        onLost();
      },
    );
    return { kind: record.owner.kind, soon, over, controller };
  }

  async #reach(record: InstanceRecord, silenceMs: number, abandoned: AbortSignal): Promise<LiveInstance | undefined> {
    const { id, handle, secret, sandboxType } = record;
    const { drivers, isTaken, found, dead } = this.#options;
    if (isTaken(id)) return undefined;
    if (handle === null) {
      await dead(record, { dead: 'its sandbox is not known' });
      return undefined;
    }
    const driver = await drivers(sandboxType);
    // If ports may be published, the driver must be called: it opens the ports again.
    const channel = mayHavePorts(record) ? undefined : await answerAtOnce(handle, secret, abandoned);
    if (channel !== undefined && !isTaken(id)) return await found(record, driver, channel);
    channel?.close();
    if (isTaken(id)) return undefined;
    const reached = await reach(driver, handle, secret, silenceMs, abandoned).catch(error => {
      if (abandoned.aborted) return undefined;
      throw error;
    });
    if (reached === undefined || abandoned.aborted) {
      if (reached && 'channel' in reached) reached.channel.close();
      return undefined;
    }
    if ('dead' in reached) {
      await dead(record, reached);
      return undefined;
    }
    if (isTaken(id)) {
      reached.channel.close();
      return undefined;
    }
    return await found(record, driver, reached.channel);
  }
}
