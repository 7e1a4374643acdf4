import { USER_CODES } from '../core/codes.ts';
import { loggable, messageOf, unavailable } from '../core/error.ts';
import { pause } from '../lib/backoff.ts';
import { raceWithin, withDeadline, within } from '../lib/deadline.ts';
import { OVER, onAbort } from '../lib/linked-signal.ts';
import type { Stages } from '../lib/stages.ts';
import type { TenantShare } from '../lib/tenant-shares.ts';
import { type Call, type CallOutcome, waitedSince } from '../runtime/call.ts';
import { Channel, ChannelClosed, CONNECTION_LOST } from '../runtime/channel.ts';
import {
  describeExit,
  type ExitResult,
  type SandboxDriver,
  type SandboxHandle,
  type SandboxState,
} from '../sandbox/driver.ts';
import type { StoredInstance } from '../storage/instances.ts';
import type { CallLimiter } from './call-limiter.ts';
import type { InstanceLog } from './contract.ts';

/** How long the reason of a lost connection is looked for: the sandbox's exit, or the way back to it. */
const FIND_OUT_MS = 1_000;
/** The same of one of which its driver says that nothing is known: after that its calls fail, and it is looked for all the same. */
const UNKNOWN_MS = 4_000;
/** One look for an instance of which nothing is known, and the pause before the next one. */
const LOOK_MS = 5_000;
const LOOK_PAUSE_MS = 1_000;
const INSPECT_MS = 5_000;
/** When the sandbox of an instance that was found is watched at the soonest, and then at the latest twice that. */
const WATCH_LATER_MS = 2_000;
/** Lost connections that are made again one after another, each within `RECONNECT_WINDOW_MS` of the one before. */
const MAX_RECONNECTS = 3;
const RECONNECT_WINDOW_MS = 60_000;
/** How long an instance that calls were taken from may take to answer a new connection for its pre_stop. */
const REOPEN_MS = 1_000;
/** The runtime bounds pre_stop itself; its answer may come this much later. */
const STOP_ANSWER_MS = 500;
const KILL_MS = 10_000;

export interface LiveInstanceOptions {
  readonly id: string;
  readonly epoch: number;
  readonly owner: StoredInstance['owner'];
  readonly tenant: string;
  readonly driver: SandboxDriver;
  readonly handle: SandboxHandle;
  /** Opens connections to the runtime. */
  readonly secret: string;
  /** Open, with the runtime initialized. */
  readonly channel: Channel;
  readonly concurrency: number;
  /** The longest that a call may take, waiting included, milliseconds; a call may ask for less. */
  readonly maxCallMs: number;
  readonly limiter: CallLimiter;
  readonly log: InstanceLog;
  /**
   * Its sandbox is watched a while later: one of many that were found at the start of a service, where each watch is a connection and wakes a process
   * of its own. Until then its end is noticed by its channel.
   */
  readonly isWatchedLater?: boolean;
}

/** An instance that ended by itself. */
export interface Ending {
  /** A sentence: `instance exited: exit code 3`. */
  readonly reason: string;
  /** Null: it was killed, or nobody knows. */
  readonly exitCode: number | null;
}

/**
 * A sandbox that runs with its connection open: takes calls, notices its end, is ended. It knows nothing of storage or of
 * what the instance does for its owner.
 */
export class LiveInstance {
  readonly id: string;
  /** Which of its sandboxes this is. */
  readonly epoch: number;
  readonly owner: StoredInstance['owner'];
  readonly tenant: string;
  readonly driver: SandboxDriver;
  readonly handle: SandboxHandle;
  /** Resolves when the sandbox ended by itself or was given up; never when it was let go or terminated. */
  readonly ended: Promise<Ending>;
  readonly #secret: string;
  readonly #concurrency: number;
  readonly #maxCallMs: number;
  readonly #limiter: CallLimiter;
  readonly #share: TenantShare | null;
  readonly #log: InstanceLog;
  #channel: Channel;
  #resolveEnded!: (ending: Ending) => void;
  /** Why calls are not taken (any more): set once it is over, whoever ended it. */
  #overBecause: string | undefined;
  /** Calls that wait for a new connection. */
  #parked = 0;
  /** The connection that was lost last, and the answer to the calls that were open on it, once that is known. */
  #finding: { readonly channel: Channel; readonly told: Promise<string> } | undefined;
  #reconnects = 0;
  #lastReconnectMs = 0;
  #exit: ExitResult | undefined;
  #unknownBecause: string | undefined;
  /** Aborted when nobody watches the sandbox any more. */
  readonly #watching = new AbortController();
  #isWatched = false;

  constructor(options: LiveInstanceOptions) {
    this.id = options.id;
    this.epoch = options.epoch;
    this.owner = options.owner;
    this.tenant = options.tenant;
    this.driver = options.driver;
    this.handle = options.handle;
    this.#secret = options.secret;
    this.#concurrency = options.concurrency;
    this.#maxCallMs = options.maxCallMs;
    this.#limiter = options.limiter;
    this.#share = options.limiter.shareOf(options.tenant);
    this.#log = options.log;
    this.#channel = options.channel;
    this.ended = new Promise(resolve => {
      this.#resolveEnded = resolve;
    });
    this.#watchChannel();
    if (options.isWatchedLater) {
      setTimeout(() => this.watchSandbox(), WATCH_LATER_MS * (1 + Math.random())).unref();
    } else this.watchSandbox();
  }

  /** False from the moment the connection broke or it is over. */
  get isConnected(): boolean {
    return this.#overBecause === undefined && !this.#channel.isClosed;
  }

  /** Why nobody can tell whether it runs, a sentence; `''` when that is known. Calls may go on all the same. */
  get whyUnknown(): string {
    return this.#unknownBecause ?? this.driver.whyUnknown?.(this.handle) ?? '';
  }

  /** Calls that run or wait in it. */
  get inFlight(): number {
    return this.#channel.inFlight;
  }

  /** Whether as many calls wait in it as may. */
  get isFull(): boolean {
    return this.#waiting >= this.#limiter.maxWaitingCalls;
  }

  /**
   * One call. Fails as `Channel.call` does, but says why when the connection ended (`unavailable`), and refuses at once
   * when too many wait (`resource_exhausted`). A call that comes while the connection is being made again waits for that.
   */
  call(asked: Call): Promise<CallOutcome> {
    const call = asked.timeoutMs <= this.#maxCallMs ? asked : { ...asked, timeoutMs: this.#maxCallMs };
    const channel = this.#channel;
    if (this.#overBecause !== undefined) return Promise.reject(unavailable(this.#overBecause));
    const bodyBytes = call.body.length;
    const refusal = this.#limiter.refusal(this.#waiting, channel.unsentBytes, bodyBytes, this.#share);
    if (refusal !== undefined) return Promise.reject(refusal);
    this.#limiter.enter(bodyBytes, this.#share);
    const running = channel.isClosed ? this.#callLater(channel, call) : channel.call(call);
    return running.then(
      outcome => {
        this.#limiter.leave(bodyBytes, this.#share);
        return outcome;
      },
      (error: unknown) => this.#callFailed(error, channel, bodyBytes),
    );
  }

  get #waiting(): number {
    return this.#channel.inFlight + this.#parked - this.#concurrency;
  }

  /** Over the connection that is made in place of `lost`. */
  async #callLater(lost: Channel, call: Call): Promise<CallOutcome> {
    const sinceMs = performance.now();
    const channel = await this.#nextChannel(lost);
    try {
      return await channel.call(waitedSince(sinceMs, call));
    } catch (error) {
      throw error instanceof ChannelClosed ? unavailable(await this.#findOut(channel)) : error;
    }
  }

  async #callFailed(error: unknown, channel: Channel, bodyBytes: number): Promise<never> {
    try {
      throw error instanceof ChannelClosed ? unavailable(await this.#findOut(channel)) : error;
    } finally {
      this.#limiter.leave(bodyBytes, this.#share);
    }
  }

  /** Lets the stream of a call send `bytes` more. */
  credit(callId: number, bytes: number): void {
    this.#channel.credit(callId, bytes);
  }

  /** Watches for the sandbox's end, if it is not watched (the driver was away). */
  watchSandbox(): void {
    if (this.#isWatched || this.#overBecause !== undefined) return;
    this.#isWatched = true;
    this.driver.wait(this.handle, this.#watching.signal).then(
      exit => {
        this.#isWatched = false;
        if (this.#overBecause !== undefined) return;
        this.#exit = exit;
        const channel = this.#channel;
        channel.close();
        void this.#findOut(channel);
      },
      (error: unknown) => {
        this.#isWatched = false;
        // Its end is still noticed by its connection; the next look at everything watches again.
        if (this.#overBecause === undefined) {
          this.#log.warn({ instanceId: this.id, err: error }, 'the sandbox cannot be watched');
        }
      },
    );
  }

  /** Lets go: the sandbox lives on; open calls end with `why`. */
  detach(why: string): void {
    if (!this.#finish(why)) return;
    this.#channel.close();
  }

  /**
   * Ends it: open calls fail at once with `instance exited: <why>`, pre_stop runs, the sandbox ends; all within
   * `graceMs`, then it is killed. The caller removes the rest of the sandbox. Rejects with what the driver's
   * `stop` rejects with; a pre_stop that failed is only logged.
   */
  async terminate(graceMs: number, why: string, stages?: Stages): Promise<void> {
    this.#finish(`instance exited: ${why}`);
    const deadlineMs = performance.now() + graceMs;
    if (graceMs > 0) await this.#runPreStop(graceMs);
    stages?.over('pre_stop');
    this.#channel.close();
    await this.driver.stop(this.handle, Math.max(0, Math.ceil(deadlineMs - performance.now())));
  }

  async #runPreStop(graceMs: number): Promise<void> {
    try {
      let channel = this.#channel;
      if (channel.isClosed || channel.inFlight > 0) {
        // Closing is what ends the open calls, here and inside.
        channel.close();
        channel = await withDeadline(Math.min(graceMs, REOPEN_MS), signal => this.#open(signal));
        this.#channel = channel;
      }
      const stopping = channel;
      const { error } = await withDeadline(graceMs + STOP_ANSWER_MS, signal => stopping.stop(graceMs, signal));
      if (error) {
        const fields = { instanceId: this.id, code: error.code, reason: loggable(error.message) };
        this.#log.warn(fields, 'pre_stop failed');
      }
    } catch (error) {
      this.#log.warn(
        { instanceId: this.id, code: USER_CODES.preStopFailed.code, reason: messageOf(error) },
        'pre_stop did not end',
      );
    }
  }

  /** The connection that is made in place of `lost`. Fails with `unavailable` when none could be made. */
  async #nextChannel(lost: Channel): Promise<Channel> {
    this.#parked++;
    try {
      const told = await this.#findOut(lost);
      if (this.#overBecause !== undefined || this.#channel === lost) throw unavailable(told);
      return this.#channel;
    } finally {
      this.#parked--;
    }
  }

  #watchChannel(): void {
    const channel = this.#channel;
    void channel.closed.then(() => this.#findOut(channel));
  }

  /** Why `channel` closed, as its calls hear it. Everybody who asks for the same loss gets the same answer. */
  #findOut(channel: Channel): Promise<string> {
    if (this.#finding?.channel === channel) return this.#finding.told;
    if (this.#overBecause !== undefined) return Promise.resolve(this.#overBecause);
    if (channel !== this.#channel) return Promise.resolve(CONNECTION_LOST);
    const finding = { channel, told: this.#exitOrReconnect(channel.closedBecause) };
    this.#finding = finding;
    return finding.told;
  }

  /** `why` the connection was lost, as far as it is known: an exit says more. */
  async #exitOrReconnect(why: string): Promise<string> {
    let found = this.#exit ?? (await this.#firstOfExitAndConnection());
    if (found === undefined && this.#overBecause === undefined) {
      const state = await this.#inspect();
      if (state?.state === 'unknown') {
        found = this.#exit ?? (await this.#firstOfExitAndConnection(UNKNOWN_MS, signal => this.#openServing(signal)));
        if (found === undefined && this.#overBecause === undefined) {
          this.#unknownBecause = state.reason;
          void this.#lookOn(why);
          return state.reason;
        }
      }
      // Who ended it may be known a moment later than that it has ended.
      if (state?.state === 'exited') found = this.#exit ?? (await this.#waitFor(UNKNOWN_MS)) ?? state.exit;
    }
    return await this.#settle(found, why);
  }

  /** Nobody can tell whether it runs: it is neither given up nor ended before somebody can. */
  async #lookOn(why: string): Promise<void> {
    this.#log.warn(
      { instanceId: this.id, reason: why },
      'an instance cannot be reached, and nobody knows whether it runs',
    );
    for (;;) {
      const found = this.#exit ?? (await this.#firstOfExitAndConnection(LOOK_MS, signal => this.#openServing(signal)));
      const state = found === undefined && this.#overBecause === undefined ? await this.#inspect() : undefined;
      if (state?.state !== 'unknown') {
        this.#unknownBecause = undefined;
        await this.#settle(found ?? (state?.state === 'exited' ? state.exit : undefined), why);
        return;
      }
      this.#unknownBecause = state.reason;
      await pause(LOOK_PAUSE_MS, this.#watching.signal);
    }
  }

  /** Undefined when its driver does not answer. */
  async #inspect(): Promise<SandboxState | undefined> {
    try {
      return await within(this.driver.inspect(this.handle), INSPECT_MS, 'the driver did not answer in time');
    } catch {
      return undefined;
    }
  }

  async #waitFor(timeoutMs: number): Promise<ExitResult | undefined> {
    return await raceWithin(timeoutMs, over => this.driver.wait(this.handle, over)).catch(() => undefined);
  }

  async #settle(found: ExitResult | Channel | undefined, why: string): Promise<string> {
    if (this.#overBecause !== undefined) {
      // Detached or terminated meanwhile.
      if (found instanceof Channel) found.close();
      return this.#overBecause;
    }
    if (found instanceof Channel) {
      this.#channel = found;
      this.#watchChannel();
      this.#log.warn({ instanceId: this.id, reason: why }, 'the connection to the instance was made again');
      return why;
    }
    const reason = found ? `instance exited: ${describeExit(found)}` : why;
    if (!found) await this.#kill();
    if (this.#finish(reason)) this.#resolveEnded({ reason, exitCode: found?.code ?? null });
    return this.#overBecause ?? reason;
  }

  /** Undefined when neither came in time: it may run, but nobody can reach it. */
  #firstOfExitAndConnection(
    timeoutMs = FIND_OUT_MS,
    connect = (signal: AbortSignal) => this.#reconnect(signal),
  ): Promise<ExitResult | Channel | undefined> {
    return raceWithin(timeoutMs, async over => {
      const late = new Promise<undefined>(resolve => onAbort(over, () => resolve(undefined)));
      const connected = connect(over);
      const exited = this.driver.wait(this.handle, over);
      const found = await Promise.race([Promise.any([exited, connected]).catch(() => undefined), late]);
      // A connection that comes after the answer is of no use.
      void connected.then(
        channel => channel !== found && channel.close(),
        () => undefined,
      );
      return found;
    });
  }

  async #reconnect(signal: AbortSignal): Promise<Channel> {
    const nowMs = performance.now();
    if (nowMs - this.#lastReconnectMs > RECONNECT_WINDOW_MS) this.#reconnects = 0;
    this.#lastReconnectMs = nowMs;
    if (++this.#reconnects > MAX_RECONNECTS) throw unavailable('the connection is lost again and again');
    return await this.#openServing(signal);
  }

  async #openServing(signal: AbortSignal): Promise<Channel> {
    const channel = await this.#open(signal);
    if (isServing(channel)) return channel;
    channel.close();
    throw unavailable(`the runtime is ${channel.hello.state}`);
  }

  #open(signal: AbortSignal): Promise<Channel> {
    return Channel.open(this.handle.endpoint, this.#secret, signal);
  }

  async #kill(): Promise<void> {
    try {
      await within(this.driver.stop(this.handle, 0), KILL_MS, 'the driver did not answer in time');
    } catch (error) {
      this.#log.error({ instanceId: this.id, err: error }, 'an unreachable sandbox could not be stopped');
    }
  }

  /** False when it was over before. */
  #finish(because: string): boolean {
    if (this.#overBecause !== undefined) return false;
    this.#overBecause = because;
    this.#share?.release();
    this.#watching.abort(OVER);
    return true;
  }
}

/** Whether the runtime at the other end has been initialized and is not about to end. */
export function isServing(channel: Channel): boolean {
  return channel.hello.state === 'ready' || channel.hello.state === 'failed';
}
