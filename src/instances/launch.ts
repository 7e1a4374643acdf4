import { messageOf, ServiceError, unavailable } from '../core/error.ts';
import { withDeadline, within } from '../lib/deadline.ts';
import { linkedTo, OVER } from '../lib/linked-signal.ts';
import type { Stages } from '../lib/stages.ts';
import type { InitOutcome } from '../runtime/call.ts';
import { Channel, ChannelClosed } from '../runtime/channel.ts';
import type { CallError, Init } from '../runtime/protocol.ts';
import {
  describeExit,
  type ExitResult,
  type SandboxDriver,
  type SandboxHandle,
  type SandboxSpec,
  type StartedSandbox,
} from '../sandbox/driver.ts';
import { lastLines } from './last-lines.ts';

type Loaded = Extract<InitOutcome, { readonly ok: true }>;

/** How long a driver may take to clean up a start that was aborted; later its sandbox is discarded when it comes. */
const ABORTED_START_MS = 5_000;
/** How long the exit of a sandbox whose connection ended is waited for. */
const EXIT_MS = 1_000;
/** A connection that takes longer than this is made while the sandbox is watched. */
const SLOW_CONNECT_MS = 50;

export interface Launching {
  readonly driver: SandboxDriver;
  readonly spec: SandboxSpec;
  readonly init: Init;
  /** Told where the time goes. */
  readonly stages: Stages | undefined;
  /** Called as soon as the sandbox is there. */
  readonly placed?: ((started: StartedSandbox) => void) | undefined;
}

export interface Launched {
  readonly started: StartedSandbox;
  readonly channel: Channel;
  /** Why the code could not be loaded, null when it could. */
  readonly loadFailure: CallError | null;
  /** Loading the code and running its initializer, milliseconds. */
  readonly loadMs: number;
}

/**
 * Starts a sandbox, connects to its runtime and has the code loaded; a load failure is a result. Bounded by `signal`, whose
 * reason is the error that it then fails with. When it fails, everything was given to `discard`, which does not reject.
 */
export async function launch(
  { driver, spec, init, stages, placed }: Launching,
  signal: AbortSignal,
  discard: (handle: SandboxHandle) => Promise<void>,
): Promise<Launched> {
  const started = await startSandbox(driver, { ...spec, init }, signal, discard);
  stages?.overWith('start', started.stages ?? {});
  const startedMs = performance.now();
  placed?.(started);
  let channel: Channel | undefined;
  try {
    channel = await connect(driver, started, spec.secret, init, signal);
    const loadingMs = performance.now();
    const outcome = await channel.initialized(signal);
    stages?.overWith('connect', outcome.ok ? partsOf(outcome, startedMs) : { load: 0 });
    if (!outcome.ok) {
      const loadFailure = await explainLoad(driver, started.handle, spec, outcome.error);
      return { started, channel, loadFailure, loadMs: performance.now() - loadingMs };
    }
    return { started, channel, loadFailure: null, loadMs: loadMsOf(outcome) };
  } catch (error) {
    channel?.close();
    const cause = signal.aborted ? signal.reason : await explain(driver, started.handle, spec, error);
    await discard(started.handle);
    throw cause;
  }
}

/** What happened while it was being connected to. `runtime`: until it began to load the code, which it may have done before the start was over. */
function partsOf(outcome: Loaded, startedMs: number): Record<string, number> {
  const load = loadMsOf(outcome);
  return outcome.beganMs === undefined ? { load } : { runtime: outcome.beganMs - startedMs, load };
}

function loadMsOf({ timing }: Loaded): number {
  return (timing.loadMicros + timing.initMicros) / 1000;
}

async function startSandbox(
  driver: SandboxDriver,
  spec: SandboxSpec,
  signal: AbortSignal,
  discard: (handle: SandboxHandle) => Promise<void>,
): Promise<StartedSandbox> {
  if (signal.aborted) throw signal.reason;
  const starting = driver.start(spec, signal);
  let onAbort!: () => void;
  const aborted = new Promise<undefined>(resolve => {
    onAbort = () => resolve(undefined);
    signal.addEventListener('abort', onAbort, { once: true });
  });
  let started: StartedSandbox | undefined;
  try {
    started = await Promise.race([starting, aborted]);
  } catch (error) {
    throw signal.aborted ? signal.reason : await explainUnavailable(driver, error);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
  if (started !== undefined && !signal.aborted) return started;
  let told: unknown;
  const cleaned = starting.then(
    ({ handle }) => discard(handle),
    (error: unknown) => {
      told = error;
    },
  );
  await within(cleaned, ABORTED_START_MS, 'the driver did not end a start').catch(() => undefined);
  throw isWhyLate(told, signal.reason) ? told : signal.reason;
}

/** A driver that knows what it has waited for says more than that it was too long. */
function isWhyLate(told: unknown, reason: unknown): boolean {
  const isLate = reason instanceof ServiceError && reason.code === 'deadline_exceeded';
  return isLate && told instanceof ServiceError && told.code === 'failed_precondition';
}

/** The open channel. Fails with `unavailable` when the sandbox ends first. */
async function connect(
  driver: SandboxDriver,
  { handle, endpoint }: StartedSandbox,
  secret: string,
  init: Init,
  signal: AbortSignal,
): Promise<Channel> {
  const { controller: over, unlink } = linkedTo(signal);
  let exit: ExitResult | undefined;
  let isWatched = false;
  const watch = () => {
    isWatched = true;
    driver.wait(handle, over.signal).then(
      result => {
        exit = result;
        over.abort();
      },
      // A driver that cannot watch does not end the start: only an exit does.
      () => undefined,
    );
  };
  // A start that goes well connects at once, and should not pay for the watching.
  const timer = setTimeout(watch, SLOW_CONNECT_MS);
  try {
    return await Channel.open(endpoint, secret, over.signal, init);
  } catch (error) {
    throw exit ? exitError(exit) : error;
  } finally {
    clearTimeout(timer);
    unlink();
    if (isWatched) over.abort(OVER);
  }
}

/** A connection that ended in the middle of the start is explained by the sandbox's exit. */
async function explain(
  driver: SandboxDriver,
  handle: SandboxHandle,
  spec: SandboxSpec,
  error: unknown,
): Promise<ServiceError> {
  const known = error instanceof ServiceError ? error : unavailable(messageOf(error), { cause: error });
  const isConnection = error instanceof ChannelClosed || known.code === 'unavailable';
  if (!isConnection) return known;
  const exit = await withDeadline(EXIT_MS, signal => driver.wait(handle, signal)).catch(() => undefined);
  const cause = exit ? exitError(exit) : known;
  const said = await lastLines(driver, handle, spec, cause.message);
  return said === '' ? cause : unavailable(cause.message + said, { cause });
}

/** Python says itself why its code could not be loaded; of another program it is known only that it does not serve. */
async function explainLoad(
  driver: SandboxDriver,
  handle: SandboxHandle,
  spec: SandboxSpec,
  failure: CallError,
): Promise<CallError> {
  if (spec.command.kind === 'python') return failure;
  return { ...failure, message: failure.message + (await lastLines(driver, handle, spec, failure.message)) };
}

/** A driver that does not answer is asked once more what is wrong with it. */
async function explainUnavailable(driver: SandboxDriver, error: unknown): Promise<unknown> {
  if (!(error instanceof ServiceError) || error.code !== 'unavailable') return error;
  const probe = await driver.probe();
  return probe.available ? error : unavailable(`${driver.name} is not available: ${probe.reason}`, { cause: error });
}

function exitError(exit: ExitResult): ServiceError {
  return unavailable(`instance exited: ${describeExit(exit)}`);
}
