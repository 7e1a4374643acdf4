import type { SchedulerOptions } from '../agents/options.ts';
import { deadlineExceeded, failedPrecondition, ServiceError } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { linkedTo } from '../lib/linked-signal.ts';
import { unknownRuntimeHint } from '../runtime/executors.ts';
import type { CallError } from '../runtime/protocol.ts';
import type { SandboxDriver, SandboxSpec, StartedSandbox } from '../sandbox/driver.ts';
import type { CallRoom } from './call-room.ts';
import { launch } from './launch.ts';
import { LiveInstance } from './live-instance.ts';
import type { Removals } from './removals.ts';
import { toInit } from './sandbox-spec.ts';

export interface StartedInstance {
  readonly live: LiveInstance;
  readonly started: StartedSandbox;
  /** Why the code could not be loaded, null when it could. */
  readonly loadFailure: CallError | null;
  readonly loadMs: number;
}

/** Starts instances within the create budget, whatever they are for. */
export class Starter {
  readonly #options: Pick<SchedulerOptions, 'createTimeoutMs' | 'log' | 'metrics'>;
  readonly #room: CallRoom;
  readonly #removals: Removals;

  constructor(
    options: Pick<SchedulerOptions, 'createTimeoutMs' | 'log' | 'metrics'>,
    room: CallRoom,
    removals: Removals,
  ) {
    this.#options = options;
    this.#room = room;
    this.#removals = removals;
  }

  /** Fails with the cause, with the reason of `signal`, or with `deadline_exceeded`; nothing is left of it then. */
  async start(
    driver: SandboxDriver,
    spec: InstanceSpec,
    sandboxSpec: SandboxSpec,
    signal: AbortSignal,
  ): Promise<StartedInstance> {
    const { createTimeoutMs, log, metrics } = this.#options;
    const { instanceId, secret } = sandboxSpec;
    const startedMs = performance.now();
    const { controller: budget, unlink } = linkedTo(signal);
    const timer = setTimeout(() => {
      budget.abort(deadlineExceeded(`the instance did not start within ${createTimeoutMs / 1000} s`));
    }, createTimeoutMs);
    const discard = this.#removals.discard.bind(this.#removals, driver);
    let outcome: 'created' | 'failed' = 'failed';
    try {
      const { started, channel, loadFailure, loadMs } = await launch(
        driver,
        sandboxSpec,
        toInit(instanceId, spec),
        budget.signal,
        handle => discard(handle),
      );
      const { tenant, concurrency, callTimeoutMs: maxCallMs } = spec;
      const { handle } = started;
      const room = this.#room;
      outcome = 'created';
      return {
        live: new LiveInstance({
          instanceId,
          tenant,
          driver,
          handle,
          secret,
          channel,
          concurrency,
          maxCallMs,
          room,
          log,
        }),
        started,
        loadFailure,
        loadMs,
      };
    } catch (error) {
      const hint = unknownRuntimeHint(spec);
      if (hint === '' || !(error instanceof ServiceError) || error.code !== 'failed_precondition') throw error;
      throw failedPrecondition(error.message + hint, { cause: error });
    } finally {
      clearTimeout(timer);
      unlink();
      metrics?.created(driver.name, outcome, performance.now() - startedMs);
    }
  }
}
