import type { OwnerKind } from '../core/instance.ts';
import { within } from '../lib/deadline.ts';
import type { Channel } from '../runtime/channel.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import { ANSWER_MS, answerAtOnce, type Dead, reach } from './adopt.ts';
import type { InstancesOptions } from './contract.ts';
import type { LiveInstance } from './live-instance.ts';
import { notAnswering } from './refusals.ts';
import { type InstanceRecord, mayHavePorts } from './rows.ts';

/** How long a sandbox of an earlier server may stay silent before it is given up: on a stalled machine a healthy one does. */
const SILENCE_MS = 30_000;

type Options = Pick<InstancesOptions, 'drivers' | 'log' | 'adoption'> & {
  /** True while something else is being done to the instance, or nothing may become live any more. */
  readonly isTaken: (id: string) => boolean;
  /** It answers: it takes calls from now on. Undefined: it was never to be found. */
  readonly found: (
    record: InstanceRecord,
    driver: SandboxDriver,
    channel: Channel,
  ) => Promise<LiveInstance | undefined>;
  /** Nothing of it runs any more. */
  readonly dead: (record: InstanceRecord, found: Dead) => Promise<void>;
  /** It could be neither reached nor given up: the next look at everything must find it. */
  readonly onLost: () => void;
};

interface Adoption {
  readonly kind: OwnerKind;
  /** Settles with the adoption, or rejects when that takes longer than a runtime that lives needs to answer. */
  readonly soon: Promise<LiveInstance | undefined>;
  /** When nothing of the adoption runs any more. Never rejects. */
  readonly over: Promise<void>;
  readonly controller: AbortController;
}

/** The search for instances that an earlier server started, once for all who ask for one. */
export class Adoptions {
  readonly #options: Options;
  readonly #running = new Map<string, Adoption>();

  constructor(options: Options) {
    this.#options = options;
  }

  /** Looked for now, perhaps for longer than anybody waits. */
  isRunning(id: string): boolean {
    return this.#running.has(id);
  }

  /** As `Instances.adopt`, of one that is not live. */
  adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    let adoption = this.#running.get(record.id);
    if (!adoption) {
      adoption = this.#begin(record);
      this.#running.set(record.id, adoption);
    }
    return adoption.soon;
  }

  /** Looks for it no longer. */
  abandon(id: string): void {
    this.#running.get(id)?.controller.abort();
  }

  /** Looks for none of this kind any more; they live on. Returns how many were looked for. */
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
        if (isLate && live) log.info({ instanceId: id }, 'an instance answered late, and serves again');
      },
      (error: unknown) => {
        // A caller that waited gets this error; nobody does after that.
        if (!isLate || controller.signal.aborted) return;
        log.warn({ instanceId: id, err: error }, 'an instance could not be adopted');
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
    // The driver, when it is asked, opens the ports of its sandbox again.
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
