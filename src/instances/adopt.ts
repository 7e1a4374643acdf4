import { messageOf, unavailable } from '../core/error.ts';
import { pause } from '../lib/backoff.ts';
import { raceWithin, within } from '../lib/deadline.ts';
import { sharedController } from '../lib/linked-signal.ts';
import { isShortage } from '../lib/system-errors.ts';
import { Channel, CONNECTION_LOST } from '../runtime/channel.ts';
import { describeExit, type ExitResult, type SandboxDriver, type SandboxHandle } from '../sandbox/driver.ts';
import { isServing } from './live-instance.ts';

const INSPECT_MS = 5_000;
const KILL_MS = 10_000;
/** A runtime that lives answers the handshake at once, whatever its handler does, unless the whole machine is stalled. */
export const ANSWER_MS = 2_000;
/** How long `answerAtOnce` waits: the handshake is a matter of a millisecond, unless many do it at a time. */
const AT_ONCE_MS = 500;
/** Between two connections when one was refused or broke. */
const RETRY_MS = 250;
const NEVER = sharedController().signal;

/** `dead`: why, a sentence; nothing of it runs any more. */
export interface Dead {
  readonly dead: string;
  /** Absent: it was killed, or nobody knows. */
  readonly exitCode?: number | null;
  readonly isSilent?: true;
  /** Its code was not loaded yet: no caller can have been told of it. */
  readonly neverServed?: boolean;
}

export type Reached = { readonly channel: Channel } | Dead;

/**
 * The open connection to a sandbox that an earlier server started, when it answers at once as one that serves does: then nobody has to be
 * asked whether it lives. Undefined: that says nothing, `reach` finds out. Never fails.
 */
export async function answerAtOnce(
  handle: SandboxHandle,
  secret: string,
  signal: AbortSignal,
): Promise<Channel | undefined> {
  try {
    const channel = await raceWithin(AT_ONCE_MS, over => Channel.reopen(handle.endpoint, secret, over), signal);
    if (isServing(channel) && !signal.aborted) return channel;
    channel.close();
  } catch {
    // `reach` hears it again.
  }
  return undefined;
}

/**
 * Finds a sandbox that an earlier server started: its open connection, or why it is dead (then nothing of it runs any
 * more). One that runs but stays silent for `silenceMs` is ended. Fails when the driver does not answer or this machine has too
 * little to ask it (nothing is known then), and with the reason of `signal` when that aborts: then it is left as it is.
 */
export async function reach(
  driver: SandboxDriver,
  handle: SandboxHandle,
  secret: string,
  silenceMs: number,
  signal: AbortSignal = NEVER,
): Promise<Reached> {
  const state = await within(driver.inspect(handle), INSPECT_MS, `${driver.name} did not answer in time`);
  signal.throwIfAborted();
  if (state.state === 'exited') return deadOf(state.exit);
  if (state.state === 'gone') return { dead: 'instance exited: its sandbox is gone' };
  const reached = await endOrAnswer(driver, handle, secret, silenceMs, signal);
  if (signal.aborted) {
    if ('channel' in reached) reached.channel.close();
    throw signal.reason;
  }
  if ('dead' in reached && reached.isSilent) await assertKnown(driver, handle);
  if ('dead' in reached) await within(driver.stop(handle, 0), KILL_MS, `${driver.name} did not answer in time`);
  return reached;
}

function deadOf(exit: ExitResult): Dead {
  return { dead: `instance exited: ${describeExit(exit)}`, exitCode: exit.code };
}

/** Nobody may give up one that perhaps runs where nobody can look. Fails with `unavailable`. */
async function assertKnown(driver: SandboxDriver, handle: SandboxHandle): Promise<void> {
  const state = await within(driver.inspect(handle), INSPECT_MS, `${driver.name} did not answer in time`);
  if (state.state === 'unknown') throw unavailable(`nothing is known of the instance now: ${state.reason}`);
}

/** What comes first; silence counts as an end. */
async function endOrAnswer(
  driver: SandboxDriver,
  handle: SandboxHandle,
  secret: string,
  silenceMs: number,
  signal: AbortSignal,
): Promise<Reached> {
  const race = async (over: AbortSignal) => {
    const answered = connect(handle, secret, over);
    // A driver that cannot watch it leaves its answer.
    const exited = driver.wait(handle, over).then(deadOf, () => answered);
    const reached = await Promise.race([answered, exited]);
    // A connection that comes after the answer is of no use.
    void answered.then(
      other => other !== reached && 'channel' in other && other.channel.close(),
      () => undefined,
    );
    return reached;
  };
  return await raceWithin(silenceMs, race, signal);
}

/** Keeps trying until `signal` aborts. Fails with `unavailable` when it could not even ask. */
async function connect(handle: SandboxHandle, secret: string, signal: AbortSignal): Promise<Reached> {
  let why = 'the runtime did not answer in time';
  let shortage: unknown;
  while (!signal.aborted) {
    try {
      const channel = await Channel.open(handle.endpoint, secret, signal);
      if (isServing(channel)) return { channel };
      channel.close();
      const { state } = channel.hello;
      return { dead: `its runtime was ${state} when the server came back`, neverServed: state !== 'stopping' };
    } catch (error) {
      why = messageOf(error);
      shortage = isShortage(error) ? error : signal.aborted ? shortage : undefined;
      await pause(RETRY_MS, signal);
    }
  }
  // A failure to ask says nothing about it.
  if (shortage !== undefined) throw unavailable(`the instance cannot be asked now: ${why}`, { cause: shortage });
  return { dead: `${CONNECTION_LOST}: ${why}`, isSilent: true };
}
