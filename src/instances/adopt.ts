import { messageOf, unavailable } from '../core/error.ts';
import { pause } from '../lib/backoff.ts';
import { raceWithin } from '../lib/deadline.ts';
import { sharedController } from '../lib/linked-signal.ts';
import { isShortage } from '../lib/system-errors.ts';
import { Channel, CONNECTION_LOST } from '../runtime/channel.ts';
import { describeExit, type ExitResult, type SandboxDriver, type SandboxHandle } from '../sandbox/driver.ts';
import { inspectSandbox, stopSandbox } from './driver-calls.ts';
import { isServing } from './live-instance.ts';

/**
 * Bound of the handshake with a live runtime, whatever its handler does, unless the whole machine is stalled.
 */
export const ANSWER_MS = 2_000;
/**
 * Time for which a recovered sandbox may stay silent before it is given up. A stalled machine delays healthy
 * ones.
 */
export const SILENCE_MS = 30_000;
/** Wait for a runtime before the driver is queried: a handshake takes about 1 ms, unless many run at once. */
const AT_ONCE_MS = 500;
/** Pause between two connections after one was refused or broke. */
const RETRY_MS = 250;
const NEVER = sharedController().signal;

/** Dead sandbox, with the reason as a sentence. No part of the sandbox runs any more. */
export interface Dead {
  readonly dead: string;
  /** Exit code; absent or null: the sandbox was killed, or the code is unknown. */
  readonly exitCode?: number | null;
  readonly isSilent?: true;
}

export type Reached = { readonly channel: Channel } | Dead;

/**
 * Reaches a recovered sandbox: returns its open connection, or why it is dead. A dead sandbox is stopped
 * completely. A running sandbox that is silent for `silenceMs` is ended. A runtime that answers at once needs
 * no inspection by its driver, unless `hasPorts`: the inspection opens published ports again. Fails if the
 * driver does not answer or this machine lacks the resources for a connection. Fails with the reason of
 * `signal` when that aborts, and leaves the sandbox unchanged.
 */
export async function reach(
  driver: SandboxDriver,
  { handle, secret, hasPorts }: { readonly handle: SandboxHandle; readonly secret: string; readonly hasPorts: boolean },
  silenceMs: number,
  signal: AbortSignal = NEVER,
): Promise<Reached> {
  const channel = hasPorts ? undefined : await answerAtOnce(handle, secret, signal);
  if (channel !== undefined) return { channel };
  signal.throwIfAborted();
  const state = await inspectSandbox(driver, handle);
  signal.throwIfAborted();
  if (state.state === 'exited') return deadOf(state.exit);
  if (state.state === 'gone') return { dead: 'instance exited: its sandbox is gone' };
  const reached = await endOrAnswer(driver, handle, secret, silenceMs, signal);
  if (signal.aborted) {
    if ('channel' in reached) reached.channel.close();
    throw signal.reason;
  }
  if ('dead' in reached && reached.isSilent) await assertKnown(driver, handle);
  if ('dead' in reached) await stopSandbox(driver, handle, 0);
  return reached;
}

/** Returns the connection to a runtime that answers at once and serves, or undefined. Never fails. */
async function answerAtOnce(handle: SandboxHandle, secret: string, signal: AbortSignal): Promise<Channel | undefined> {
  try {
    const channel = await raceWithin(AT_ONCE_MS, over => Channel.reopen(handle.endpoint, secret, over), signal);
    if (isServing(channel) && !signal.aborted) return channel;
    channel.close();
  } catch {
    // A later connection fails with the same error.
  }
  return undefined;
}

function deadOf(exit: ExitResult): Dead {
  return { dead: `instance exited: ${describeExit(exit)}`, exitCode: exit.code };
}

/** Fails with `unavailable` if the driver does not know the sandbox's state: the sandbox may still run. */
async function assertKnown(driver: SandboxDriver, handle: SandboxHandle): Promise<void> {
  const state = await inspectSandbox(driver, handle);
  if (state.state === 'unknown') throw unavailable(`nothing is known of the instance now: ${state.reason}`);
}

/** Returns the first of exit, answer and silence; silence counts as an end. */
async function endOrAnswer(
  driver: SandboxDriver,
  handle: SandboxHandle,
  secret: string,
  silenceMs: number,
  signal: AbortSignal,
): Promise<Reached> {
  const race = async (over: AbortSignal) => {
    const answered = connect(handle, secret, over);
    // If the driver cannot watch the sandbox, the connection decides.
    const exited = driver.wait(handle, over).then(deadOf, () => answered);
    const reached = await Promise.race([answered, exited]);
    // Closes a connection that opens after the result was chosen.
    void answered.then(
      other => other !== reached && 'channel' in other && other.channel.close(),
      () => undefined,
    );
    return reached;
  };
  return await raceWithin(silenceMs, race, signal);
}

/**
 * Connects repeatedly until `signal` aborts. Fails with `unavailable` if a local shortage prevented the
 * connection.
 */
async function connect(handle: SandboxHandle, secret: string, signal: AbortSignal): Promise<Reached> {
  let why = 'the runtime did not answer in time';
  let shortage: unknown;
  while (!signal.aborted) {
    try {
      const channel = await Channel.open(handle.endpoint, secret, signal);
      if (isServing(channel)) return { channel };
      channel.close();
      const { state } = channel.hello;
      return { dead: `its runtime was ${state} when the server came back` };
    } catch (error) {
      why = messageOf(error);
      shortage = isShortage(error) ? error : signal.aborted ? shortage : undefined;
      await pause(RETRY_MS, signal);
    }
  }
  // A local shortage says nothing about the sandbox.
  if (shortage !== undefined) throw unavailable(`the instance cannot be asked now: ${why}`, { cause: shortage });
  return { dead: `${CONNECTION_LOST}: ${why}`, isSilent: true };
}
