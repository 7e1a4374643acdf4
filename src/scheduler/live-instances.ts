import type { SandboxType } from '../core/instance.ts';
import { reach } from './adopt.ts';
import type { CallRoom } from './call-room.ts';
import { LiveInstance } from './live-instance.ts';
import type { SchedulerOptions } from './options.ts';
import type { InstanceRecord, InstanceRecords } from './records.ts';

type Options = Pick<SchedulerOptions, 'drivers' | 'log' | 'metrics'> & {
  readonly records: InstanceRecords;
  readonly room: CallRoom;
  /** True while something else is being done to the instance, or nothing may become live any more. */
  readonly isTaken: (id: string) => boolean;
  /** The end of an instance could not be written: the next look at everything must find it. */
  readonly onUnwritten: () => void;
};

/** The RUNNING instances of this process: what calls need. Each leaves by itself when its sandbox ends. */
export class LiveInstances {
  readonly byId = new Map<string, LiveInstance>();
  readonly #options: Options;
  readonly #adopting = new Map<string, Promise<LiveInstance | undefined>>();

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

  /**
   * Makes a RUNNING instance live that an earlier server started, once for all who ask; undefined when it is dead (it is
   * FAILED then) or going. Rejects when its driver does not answer.
   */
  adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    const { id } = record.instance;
    const live = this.byId.get(id);
    if (live) return Promise.resolve(live);
    let adopting = this.#adopting.get(id);
    if (!adopting) {
      adopting = this.#reach(record).finally(() => this.#adopting.delete(id));
      this.#adopting.set(id, adopting);
    }
    return adopting;
  }

  /** Lets go of all of them; they live on. */
  detachAll(why: string): void {
    for (const live of this.byId.values()) live.detach(why);
    this.byId.clear();
  }

  async #reach({ instance, handle, secret }: InstanceRecord): Promise<LiveInstance | undefined> {
    const { id, spec } = instance;
    const { drivers, isTaken, log, room } = this.#options;
    if (isTaken(id)) return undefined;
    if (handle === null) {
      await this.#fail(id, spec.sandboxType, 'its sandbox is not known');
      return undefined;
    }
    const driver = await drivers(spec.sandboxType);
    const reached = await reach(driver, handle, secret);
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
