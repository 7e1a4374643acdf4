import { failedPrecondition, messageOf, PartAway, ServiceError, unavailable } from '../core/error.ts';
import { withDeadline, within } from '../lib/deadline.ts';
import { linkedTo, OVER } from '../lib/linked-signal.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
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

/** Time for a driver to clean up an aborted start. A sandbox that appears later is discarded. */
const ABORTED_START_MS = 5_000;
/** Wait for the exit of a sandbox whose connection ended. */
const EXIT_MS = 1_000;
/** Delay after which a sandbox is watched while the connection is made. */
const SLOW_CONNECT_MS = 50;

/** Largest saved state that the order to start contains. The runtime parses it while the service connects. */
const EARLY_STATE_CHARS = 64 * 1024;

export interface Launching {
  readonly driver: SandboxDriver;
  readonly spec: SandboxSpec;
  readonly init: Init;
  /** Measures the steps of the start. */
  readonly stages: ServerTiming | undefined;
  /** Called when the sandbox has started, before its runtime connects. */
  readonly started: () => void;
}

export interface Launched {
  readonly started: StartedSandbox;
  readonly channel: Channel;
  /** Reason why the code failed to load; null if it loaded. */
  readonly loadFailure: CallError | null;
  /** Duration of loading the code and running its initializer, milliseconds. */
  readonly loadMs: number;
}

/**
 * Starts a sandbox, connects to its runtime and loads the code; a load failure is a result. Fails with the
 * reason of `signal` when that aborts. On failure every sandbox is passed to `discard`, which must not
 * reject.
 */
export async function launch(
  { driver, spec, init, stages, started: hasStarted }: Launching,
  signal: AbortSignal,
  discard: (handle: SandboxHandle) => Promise<void>,
): Promise<Launched> {
  // A large state is sent once, over the connection.
  const isSmall = (init.durable?.state?.length ?? 0) <= EARLY_STATE_CHARS;
  const started = await startSandbox(driver, isSmall ? { ...spec, init } : spec, signal, discard);
  stages?.endWith('start', started.stages ?? {});
  hasStarted();
  const startedMs = performance.now();
  let channel: Channel | undefined;
  try {
    channel = await connect(driver, started, spec.secret, init, signal);
    if (init.durable !== undefined && channel.hello.durable === undefined) throw keepsNoState(channel.hello);
    const loadingMs = performance.now();
    const outcome = await channel.initialized(signal);
    stages?.endWith('connect', outcome.ok ? partsOf(outcome, startedMs) : { load: 0 });
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

/**
 * Returns the parts of the connect step, milliseconds. `runtime` ends when the runtime begins to load the
 * code, possibly before the driver's start has returned.
 */
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

/** Returns true if the driver's error explains a start that took too long better than the timeout does. */
function isWhyLate(told: unknown, reason: unknown): boolean {
  const isLate = reason instanceof ServiceError && reason.code === 'deadline_exceeded';
  return isLate && told instanceof ServiceError && told.code === 'failed_precondition';
}

/** Returns the open channel. Fails with `unavailable` if the sandbox ends first. */
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
      // A driver that cannot watch must not fail the start: only an exit does.
      () => undefined,
    );
  };
  // A normal start connects before this timer fires and saves the cost of a watch.
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

/**
 * Returns the sandbox's exit as the cause of a connection that ended during the start, with the last output.
 */
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

/** Adds the last output to a load failure, except for Python, whose runtime reports the reason itself. */
async function explainLoad(
  driver: SandboxDriver,
  handle: SandboxHandle,
  spec: SandboxSpec,
  failure: CallError,
): Promise<CallError> {
  if (spec.command.kind === 'python') return failure;
  return { ...failure, message: failure.message + (await lastLines(driver, handle, spec, failure.message)) };
}

/**
 * Probes a driver that did not answer. An error that names its part is kept, because the probe starts another
 * zygote than the instance needs.
 */
async function explainUnavailable(driver: SandboxDriver, error: unknown): Promise<unknown> {
  if (!(error instanceof ServiceError) || error.code !== 'unavailable') return error;
  const notAvailable = (why: string) => new PartAway(`${driver.name} is not available: ${why}`, { cause: error });
  if (error instanceof PartAway) return notAvailable(error.message);
  const probe = await driver.probe();
  return probe.available ? error : notAvailable(probe.reason);
}

/** Refuses a durable agent whose runtime cannot save. */
function keepsNoState({ runtime, sdk }: Channel['hello']): ServiceError {
  return failedPrecondition(
    `durable: the runtime ${runtime} (${sdk}) cannot save the state of an agent; use a Python, Node.js, Go or Java runtime of this version`,
  );
}

function exitError(exit: ExitResult): ServiceError {
  return unavailable(`instance exited: ${describeExit(exit)}`);
}
