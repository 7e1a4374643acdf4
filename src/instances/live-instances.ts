import type { SchedulerOptions } from '../agents/options.ts';
import type { InstanceRecord, InstanceRecords } from '../agents/records.ts';
import { notAnswering } from '../agents/refusals.ts';
import type { SandboxType } from '../core/instance.ts';
import { ANSWER_MS, reach } from './adopt.ts';
import type { CallRoom } from './call-room.ts';
import { LiveInstance } from './live-instance.ts';

/** How long a sandbox of an earlier server may stay silent before it is given up: on a stalled machine a healthy one does. */
const SILENCE_MS = 30_000;

type Options = Pick<SchedulerOptions, 'drivers' | 'log' | 'metrics' | 'adoption'> & {
  readonly records: InstanceRecords;
  readonly room: CallRoom;
  /** True while something else is being done to the instance, or nothing may become live any more. */
  readonly isTaken: (id: string) => boolean;
  /** The end of an instance could not be written: the next look at everything must find it. */
  readonly onUnwritten: () => void;
};

interface Adoption {
  /** Settles with the adoption, or rejects when that takes longer than a runtime that lives needs to answer. */
  readonly soon: Promise<LiveInstance | undefined>;
  /** When nothing of the adoption runs any more. Never rejects. */
  readonly over: Promise<void>;
  readonly abandon: AbortController;
}

/** The RUNNING instances of this process: what calls need. Each leaves by itself when its sandbox ends. */
export class LiveInstances {
  readonly byId = new Map<string, LiveInstance>();
  readonly #options: Options;
  readonly #adopting = new Map<string, Adoption>();

  constructor(options: Options) {
    this.#options = options;
  }

  /** Takes calls for it from now on, until it ends by itself: then its row is FAILED. */
  add(live: LiveInstance): void {
    const id = live.instanceId;
    this.byId.set(id, live);
    void live.ended.then(async ({ reason }) => {
      if (this.byId.get(id) === live) this.byId.delete(id);
      await this.#fail(id, live.driver.name, reason);
    });
  }

  /** Looked for now, perhaps for longer than anybody waits. */
  isAdopting(id: string): boolean {
    return this.#adopting.has(id);
  }

  /**
   * Makes a RUNNING instance live that an earlier server started, once for all who ask; undefined when it is dead (it is
   * FAILED then) or going. Rejects when its driver does not answer, and when its runtime does not answer soon: then it is
   * waited for in the background, and ended when it stays silent.
   */
  adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    const { id } = record.instance;
    const live = this.byId.get(id);
    if (live) return Promise.resolve(live);
    let adoption = this.#adopting.get(id);
    if (!adoption) {
      adoption = this.#begin(record);
      this.#adopting.set(id, adoption);
    }
    return adoption.soon;
  }

  /** Takes no more calls for it, and looks for it no longer: its end is somebody else's. */
  take(id: string): LiveInstance | undefined {
    const live = this.byId.get(id);
    this.byId.delete(id);
    this.#adopting.get(id)?.abandon.abort();
    return live;
  }

  /** Looks for none any more; they live on. Returns how many were looked for. */
  async abandonAdoptions(): Promise<number> {
    const adoptions = [...this.#adopting.values()];
    for (const { abandon } of adoptions) abandon.abort();
    await Promise.all(adoptions.map(({ over }) => over));
    return adoptions.length;
  }

  /** Lets go of all of them; they live on. */
  detachAll(why: string): void {
    for (const live of this.byId.values()) live.detach(why);
    this.byId.clear();
  }

  #begin(record: InstanceRecord): Adoption {
    const { id } = record.instance;
    const { adoption = { answerMs: ANSWER_MS, silenceMs: SILENCE_MS }, log, onUnwritten } = this.#options;
    const abandon = new AbortController();
    const adopted = this.#reach(record, adoption.silenceMs, abandon.signal).finally(() => this.#adopting.delete(id));
    let isLate = false;
    const soon = new Promise<LiveInstance | undefined>((resolve, reject) => {
      const timer = setTimeout(() => {
        isLate = true;
        reject(notAnswering(id));
      }, adoption.answerMs);
      adopted.then(resolve, reject).finally(() => clearTimeout(timer));
    });
    soon.catch(() => undefined);
    const over = adopted.then(
      live => {
        if (isLate && live) log.info({ instanceId: id }, 'an instance answered late, and serves again');
      },
      (error: unknown) => {
        // Whoever waited is told; after that nobody is.
        if (!isLate || abandon.signal.aborted) return;
        log.warn({ instanceId: id, err: error }, 'an instance could not be adopted');
        onUnwritten();
      },
    );
    return { soon, over, abandon };
  }

  async #reach(
    { instance, handle, secret }: InstanceRecord,
    silenceMs: number,
    abandoned: AbortSignal,
  ): Promise<LiveInstance | undefined> {
    const { id, spec } = instance;
    const { drivers, isTaken, log, room } = this.#options;
    if (isTaken(id)) return undefined;
    if (handle === null) {
      await this.#fail(id, spec.sandboxType, 'its sandbox is not known');
      return undefined;
    }
    const driver = await drivers(spec.sandboxType);
    const reached = await reach(driver, handle, secret, silenceMs, abandoned).catch(error => {
      if (abandoned.aborted) return undefined;
      throw error;
    });
    // Checked with nothing awaited before the write: what it is restarted as must not become FAILED.
    if (reached === undefined || abandoned.aborted) {
      if (reached && 'channel' in reached) reached.channel.close();
      return undefined;
    }
    if ('dead' in reached) {
      await this.#fail(id, driver.name, reached.dead);
      return undefined;
    }
    const { channel } = reached;
    if (isTaken(id)) {
      channel.close();
      return undefined;
    }
    const { tenant, concurrency, callTimeoutMs: maxCallMs } = spec;
    const live = new LiveInstance({
      instanceId: id,
      tenant,
      driver,
      handle,
      secret,
      channel,
      concurrency,
      maxCallMs,
      room,
      log,
    });
    this.add(live);
    return live;
  }

  async #fail(id: string, driver: SandboxType, reason: string): Promise<void> {
    const { log, metrics, onUnwritten, records } = this.#options;
    metrics?.exited(driver);
    log.warn({ instanceId: id, reason }, 'an instance ended by itself');
    try {
      await records.move(id, 'exited', { statusReason: reason });
    } catch (error) {
      log.error({ instanceId: id, err: error }, 'the end of an instance could not be written');
      onUnwritten();
    }
  }
}
