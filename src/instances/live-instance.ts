import { USER_CODES } from '../core/codes.ts';
import { loggable, messageOf, unavailable } from '../core/error.ts';
import { pause } from '../lib/backoff.ts';
import { raceWithin, withDeadline } from '../lib/deadline.ts';
import { OVER, onAbort } from '../lib/linked-signal.ts';
import type { Log } from '../lib/log.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import { type Call, type CallOutcome, waitedSince } from '../runtime/call.ts';
import { Channel, ChannelClosed, CONNECTION_LOST } from '../runtime/channel.ts';
import {
  describeExit,
  type ExitResult,
  type SandboxDriver,
  type SandboxHandle,
  type SandboxState,
} from '../sandbox/driver.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import type { CallLimiter } from './call-limiter.ts';
import { inspectSandbox, stopSandbox } from './driver-calls.ts';
import { type AgentSaver, type Ending, type LiveInstanceOptions, STATE_LOST } from './live-options.ts';
import type { SilenceTimes } from './silence-times.ts';

/** Earliest moment at which the sandbox of an adopted instance is watched; the latest is twice that. */
const WATCH_LATER_MS = 2_000;
/** Most reconnects in a row, each within `RECONNECT_WINDOW_MS` of the one before. */
const MAX_RECONNECTS = 3;
const RECONNECT_WINDOW_MS = 60_000;
/** Time to connect again for pre_stop, after the connection was closed to end open calls. */
const REOPEN_MS = 1_000;
/** Extra time for the runtime's answer: the runtime bounds pre_stop itself. */
const STOP_ANSWER_MS = 500;
/**
 * Running sandbox with an open connection: runs calls, detects the sandbox's end and terminates it.
 * Independent of storage and of the owner's purpose.
 */
export class LiveInstance {
  readonly id: string;
  /** Number of the sandbox among those that the instance has had. */
  readonly epoch: number;
  readonly owner: StoredInstance['owner'];
  readonly tenant: string;
  readonly driver: SandboxDriver;
  readonly handle: SandboxHandle;
  /** Resolves when the sandbox ended by itself or was given up; never after `detach` or `terminate`. */
  readonly ended: Promise<Ending>;
  readonly #secret: string;
  readonly #concurrency: number;
  readonly #maxCallMs: number;
  readonly #limiter: CallLimiter;
  readonly #silence: SilenceTimes;
  readonly #log: Log;
  #channel: Channel;
  #resolveEnded!: (ending: Ending) => void;
  /** Reason why calls are refused; set once the instance is closed, for whatever cause. */
  #overBecause: string | undefined;
  #callsBegun = 0;
  /** Number of calls that wait for a new connection. */
  #parked = 0;
  /** Connection that was lost last, and a promise of the reason that its open calls receive. */
  #finding: { readonly channel: Channel; readonly told: Promise<string> } | undefined;
  #reconnects = 0;
  #lastReconnectMs = 0;
  #exit: ExitResult | undefined;
  #unknownBecause: string | undefined;
  /** Aborts when the watch of the sandbox ends. */
  readonly #watching = new AbortController();
  #isWatched = false;
  readonly #saver: AgentSaver | undefined;

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
    this.#silence = options.silence;
    this.#log = options.log;
    this.#channel = options.channel;
    this.ended = new Promise(resolve => {
      this.#resolveEnded = resolve;
    });
    this.#saver = options.saver;
    this.#saver?.bind(this.#channel, why => void this.giveUp(why));
    this.#watchChannel();
    if (options.isWatchedLater) {
      setTimeout(() => this.watchSandbox(), WATCH_LATER_MS * (1 + Math.random())).unref();
    } else this.watchSandbox();
  }

  /** Returns false once the connection broke or the instance is closed. */
  get isConnected(): boolean {
    return this.#overBecause === undefined && !this.#channel.isClosed;
  }

  /**
   * Returns a sentence why the sandbox's state is unknown, or `''` if the state is known. Calls may continue
   * meanwhile.
   */
  get whyUnknown(): string {
    return this.#unknownBecause ?? this.driver.whyUnknown?.(this.handle) ?? '';
  }

  /** Returns the number of calls that run or wait in the instance. */
  get inFlight(): number {
    return this.#channel.inFlight;
  }

  /** Resolves when every accepted save of the state was tried; undefined: none is pending. Never rejects. */
  get saving(): Promise<void> | undefined {
    return this.#saver?.saving;
  }

  /** Returns the time from now during which code keeps a durable agent awake, milliseconds. */
  get keptAwakeMs(): number {
    return this.#saver?.keptAwakeMs ?? 0;
  }

  /** Returns the number of calls that the instance has taken in this process. */
  get callsBegun(): number {
    return this.#callsBegun;
  }

  /** Returns true if the instance has as many waiting calls as the limiter allows. */
  get isFull(): boolean {
    return this.#waiting >= this.#limiter.maxWaitingCalls;
  }

  /**
   * Runs one call. Fails as `Channel.call` does, but replaces a closed connection by `unavailable` with the
   * reason. Refuses at once with `resource_exhausted` when too many calls wait. A call that arrives during a
   * reconnect waits for the new connection.
   */
  call(asked: Call): Promise<CallOutcome> {
    const call = asked.timeoutMs <= this.#maxCallMs ? asked : { ...asked, timeoutMs: this.#maxCallMs };
    const channel = this.#channel;
    if (this.#overBecause !== undefined) return Promise.reject(unavailable(this.#overBecause));
    const bodyBytes = call.body.length;
    const refusal = this.#limiter.refusal(this.tenant, this.#waiting, channel.unsentBytes, bodyBytes);
    if (refusal !== undefined) return Promise.reject(refusal);
    this.#callsBegun += 1;
    this.#limiter.enter(this.tenant, bodyBytes);
    const running = channel.isClosed ? this.#callLater(channel, call) : channel.call(call);
    return running.then(
      outcome => {
        this.#limiter.release(this.tenant, bodyBytes);
        return outcome;
      },
      (error: unknown) => this.#callFailed(error, channel, bodyBytes),
    );
  }

  get #waiting(): number {
    return this.#channel.inFlight + this.#parked - this.#concurrency;
  }

  /** Runs `call` over the connection that replaces `lost`. */
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
      this.#limiter.release(this.tenant, bodyBytes);
    }
  }

  /** Allows the stream of a call to send `bytes` more. */
  credit(callId: number, bytes: number): void {
    this.#channel.credit(callId, bytes);
  }

  /**
   * Watches for the sandbox's end, unless a watch is active. A watch fails while the driver does not answer.
   */
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
        // The connection still reports the sandbox's end; the next reconciler pass watches again.
        if (this.#overBecause === undefined) {
          this.#log.warn({ instanceId: this.id, err: error }, 'cannot watch sandbox');
        }
      },
    );
  }

  /** Ends a sandbox whose state is not the saved one. Open calls end with `why`. Never rejects. */
  async giveUp(why: string): Promise<void> {
    if (!this.#finish(why)) return;
    this.#channel.close();
    await this.#kill();
    this.#resolveEnded({ reason: why, exitCode: null });
  }

  /** Closes the connection and keeps the sandbox running; open calls end with `why`. */
  detach(why: string): void {
    if (!this.#finish(why)) return;
    this.#channel.close();
  }

  /**
   * Terminates the sandbox. Open calls fail at once with `instance exited: <why>`, then pre_stop runs. After
   * `graceMs` in all, the driver kills the sandbox. The caller removes the rest of the sandbox. Rejects with
   * the error of the driver's `stop`; a failed pre_stop is only logged.
   */
  async terminate(graceMs: number, why: string, stages?: ServerTiming): Promise<void> {
    this.#finish(`instance exited: ${why}`);
    const deadlineMs = performance.now() + graceMs;
    if (graceMs > 0) await this.#runPreStop(graceMs);
    stages?.end('pre_stop');
    this.#channel.close();
    await this.driver.stop(this.handle, Math.max(0, Math.ceil(deadlineMs - performance.now())));
  }

  async #runPreStop(graceMs: number): Promise<void> {
    try {
      let channel = this.#channel;
      if (channel.isClosed || channel.inFlight > 0) {
        // Closing the channel ends the open calls, in the service and in the runtime.
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

  /**
   * Returns the connection that replaces `lost`. Fails with `unavailable` if the instance has no new
   * connection.
   */
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

  /**
   * Resolves with the reason why `channel` closed, for its calls. All callers with the same lost channel
   * share one search.
   */
  #findOut(channel: Channel): Promise<string> {
    if (this.#finding?.channel === channel) return this.#finding.told;
    if (this.#overBecause !== undefined) return Promise.resolve(this.#overBecause);
    if (channel !== this.#channel) return Promise.resolve(CONNECTION_LOST);
    const finding = { channel, told: this.#exitOrReconnect(channel.closedBecause) };
    this.#finding = finding;
    return finding.told;
  }

  /**
   * Resolves with the reason of the loss: the sandbox's exit if there was one, otherwise `why`. Reconnects if
   * possible.
   */
  async #exitOrReconnect(why: string): Promise<string> {
    let found = this.#exit ?? (await this.#firstOfExitAndConnection());
    if (found === undefined && this.#overBecause === undefined) {
      const state = await this.#inspect();
      if (state?.state === 'unknown') {
        found =
          this.#exit ??
          (await this.#firstOfExitAndConnection(this.#silence.unknownMs, signal => this.#openServing(signal)));
        if (found === undefined && this.#overBecause === undefined) {
          this.#unknownBecause = state.reason;
          void this.#pollUnknown(why);
          return state.reason;
        }
      }
      // A driver may report the exit a moment before it can report the cause of the exit.
      if (state?.state === 'exited') found = this.#exit ?? (await this.#waitFor(this.#silence.unknownMs)) ?? state.exit;
    }
    return await this.#resolve(found, why);
  }

  /**
   * Polls until the driver knows the sandbox's state. Until then the instance is neither given up nor
   * terminated.
   */
  async #pollUnknown(why: string): Promise<void> {
    this.#log.warn({ instanceId: this.id, reason: why }, 'instance is unreachable and its state is unknown');
    for (;;) {
      const found =
        this.#exit ?? (await this.#firstOfExitAndConnection(this.#silence.pollMs, signal => this.#openServing(signal)));
      const state = found === undefined && this.#overBecause === undefined ? await this.#inspect() : undefined;
      if (state?.state !== 'unknown') {
        this.#unknownBecause = undefined;
        await this.#resolve(found ?? (state?.state === 'exited' ? state.exit : undefined), why);
        return;
      }
      this.#unknownBecause = state.reason;
      await pause(this.#silence.pollPauseMs, this.#watching.signal);
    }
  }

  /** Returns undefined if the driver does not answer. */
  async #inspect(): Promise<SandboxState | undefined> {
    try {
      return await inspectSandbox(this.driver, this.handle);
    } catch {
      return undefined;
    }
  }

  async #waitFor(timeoutMs: number): Promise<ExitResult | undefined> {
    return await raceWithin(timeoutMs, over => this.driver.wait(this.handle, over)).catch(() => undefined);
  }

  async #resolve(found: ExitResult | Channel | undefined, why: string): Promise<string> {
    if (this.#overBecause !== undefined) {
      // The instance was detached or terminated meanwhile.
      if (found instanceof Channel) found.close();
      return this.#overBecause;
    }
    if (found instanceof Channel) {
      if (!(await (this.#saver?.agrees(found.hello) ?? true))) {
        found.close();
        await this.giveUp(STATE_LOST);
        return this.#overBecause ?? STATE_LOST;
      }
      this.#channel = found;
      this.#saver?.bind(found, reason => void this.giveUp(reason));
      this.#watchChannel();
      this.#log.warn({ instanceId: this.id, reason: why }, 'reconnected to instance');
      return why;
    }
    const exit = found ?? (await this.#kill());
    const reason = exit ? `instance exited: ${describeExit(exit)}` : why;
    if (this.#finish(reason)) this.#resolveEnded({ reason, exitCode: exit?.code ?? null });
    return this.#overBecause ?? reason;
  }

  /**
   * Resolves with the exit or the connection, whichever is first; undefined if neither arrives within
   * `timeoutMs`.
   */
  #firstOfExitAndConnection(
    timeoutMs = this.#silence.findOutMs,
    connect = (signal: AbortSignal) => this.#reconnect(signal),
  ): Promise<ExitResult | Channel | undefined> {
    return raceWithin(timeoutMs, async over => {
      const late = new Promise<undefined>(resolve => onAbort(over, () => resolve(undefined)));
      const connected = connect(over);
      const exited = this.driver.wait(this.handle, over);
      const found = await Promise.race([Promise.any([exited, connected]).catch(() => undefined), late]);
      // Closes a connection that opens after the result was chosen.
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

  /**
   * Kills the sandbox. Returns its exit if it had exited with an error before, which a busy machine reports
   * late; otherwise undefined.
   */
  async #kill(): Promise<ExitResult | undefined> {
    try {
      await stopSandbox(this.driver, this.handle, 0);
    } catch (error) {
      this.#log.error({ instanceId: this.id, err: error }, 'stop of unreachable sandbox failed');
      return undefined;
    }
    const exit = this.#exit ?? (await this.#waitFor(this.#silence.findOutMs));
    return exit?.code ? exit : undefined;
  }

  /** Marks the instance as closed. Returns false if it was closed before. */
  #finish(because: string): boolean {
    if (this.#overBecause !== undefined) return false;
    this.#overBecause = because;
    this.#watching.abort(OVER);
    return true;
  }
}

/**
 * Returns true if the runtime is initialized and not stopping. A runtime whose code failed to load counts.
 */
export function isServing(channel: Channel): boolean {
  return channel.hello.state === 'ready' || channel.hello.state === 'failed';
}
