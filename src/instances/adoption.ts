import type { OwnerKind } from '../core/instance.ts';
import { within } from '../lib/deadline.ts';
import type { Channel } from '../runtime/channel.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import { ANSWER_MS, type Dead, reach, SILENCE_MS } from './adopt.ts';
import type { InstancesOptions } from './contract.ts';
import { stopSandbox } from './driver-calls.ts';
import type { LiveInstance } from './live-instance.ts';
import { STATE_LOST } from './live-options.ts';
import { notAnswering } from './refusals.ts';
import type { InstanceRecord } from './rows.ts';

export interface AdoptionOptions extends Pick<InstancesOptions, 'drivers' | 'log' | 'adoption'> {
  /** Returns true while another operation works on the instance, or when nothing may become live any more. */
  readonly isTaken: () => boolean;
  /** Returns true if the runtime has the saved state. Otherwise the instance is ended. */
  readonly agrees: (hello: Channel['hello']) => Promise<boolean>;
  /** Called when the instance answers; it takes calls from now on. */
  readonly found: (driver: SandboxDriver, handle: SandboxHandle, channel: Channel) => LiveInstance;
  /** Called when no part of the sandbox runs any more. */
  readonly dead: (found: Dead) => Promise<void>;
  /** Called if the instance was neither reached nor given up: the next reconciler pass must find it. */
  readonly onLost: () => void;
}

/** Search for an instance that an earlier server started. All callers share one search. */
export class Adoption {
  /** Settles with the adoption; rejects if the adoption takes longer than `answerMs`. */
  readonly soon: Promise<LiveInstance | undefined>;
  /** Resolves when the adoption has ended. Never rejects. */
  readonly ended: Promise<void>;
  readonly kind: OwnerKind;
  readonly #options: AdoptionOptions;
  readonly #controller = new AbortController();

  constructor(record: InstanceRecord, options: AdoptionOptions) {
    this.kind = record.owner.kind;
    this.#options = options;
    const { id } = record;
    const { adoption = { answerMs: ANSWER_MS, silenceMs: SILENCE_MS }, log, onLost } = options;
    const adopted = this.#adopt(record, adoption.silenceMs);
    let isLate = false;
    this.soon = within(adopted, adoption.answerMs, () => {
      isLate = true;
      return notAnswering(id);
    });
    this.soon.catch(() => undefined);
    this.ended = adopted.then(
      live => {
        if (isLate && live) log.info({ instanceId: id }, 'instance answered late and is adopted');
      },
      (error: unknown) => {
        // A caller that waited receives this error. After `answerMs` only the log does.
        if (!isLate || this.#controller.signal.aborted) return;
        log.warn({ instanceId: id, err: error }, 'adoption of instance failed');
        onLost();
      },
    );
  }

  /** Ends the search and keeps the sandbox. */
  abandon(): void {
    this.#controller.abort();
  }

  async #adopt(record: InstanceRecord, silenceMs: number): Promise<LiveInstance | undefined> {
    const { drivers, isTaken, found, dead } = this.#options;
    const { handle, secret, sandbox, sandboxType } = record;
    const { signal } = this.#controller;
    if (isTaken()) return undefined;
    if (handle === null) {
      await dead({ dead: 'its sandbox is not known' });
      return undefined;
    }
    const driver = await drivers(sandboxType);
    if (isTaken()) return undefined;
    const hasPorts = sandbox.portMappings.length > 0;
    const reached = await reach(driver, { handle, secret, hasPorts }, silenceMs, signal).catch(error => {
      if (signal.aborted) return undefined;
      throw error;
    });
    if (reached !== undefined && 'dead' in reached && !signal.aborted) await dead(reached);
    if (reached === undefined || 'dead' in reached) return undefined;
    if (!signal.aborted && !isTaken() && !(await this.#options.agrees(reached.channel.hello))) {
      reached.channel.close();
      await stopSandbox(driver, handle, 0);
      await dead({ dead: STATE_LOST });
      return undefined;
    }
    if (!signal.aborted && !isTaken()) return found(driver, handle, reached.channel);
    reached.channel.close();
    return undefined;
  }
}
