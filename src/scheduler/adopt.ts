import { messageOf } from '../core/error.ts';
import { Channel } from '../runtime/channel.ts';
import { describeExit, type SandboxDriver, type SandboxHandle } from '../sandbox/driver.ts';
import { withDeadline, within } from './bounded.ts';
import { CONNECTION_LOST, isServing } from './live-instance.ts';

const INSPECT_MS = 5_000;
const KILL_MS = 10_000;
/** A runtime that lives answers the handshake at once, whatever its handler does. */
const OPEN_MS = 2_000;

export type Reached = { readonly channel: Channel } | { readonly dead: string };

/**
 * Finds a sandbox that an earlier server started: its open connection, or why it is dead (then nothing of it runs any
 * more). Fails when the driver does not answer: nothing is known then.
 */
export async function reach(driver: SandboxDriver, handle: SandboxHandle, secret: string): Promise<Reached> {
  const state = await within(driver.inspect(handle), INSPECT_MS, `${driver.name} did not answer in time`);
  if (state.state === 'exited') return { dead: `instance exited: ${describeExit(state.exit)}` };
  if (state.state === 'gone') return { dead: 'instance exited: its sandbox is gone' };
  const reached = await connect(handle, secret);
  if ('dead' in reached) await within(driver.stop(handle, 0), KILL_MS, `${driver.name} did not answer in time`);
  return reached;
}

async function connect(handle: SandboxHandle, secret: string): Promise<Reached> {
  let channel: Channel;
  try {
    channel = await withDeadline(OPEN_MS, signal => Channel.open(handle.endpoint, secret, signal));
  } catch (error) {
    return { dead: `${CONNECTION_LOST}: ${messageOf(error)}` };
  }
  if (isServing(channel)) return { channel };
  channel.close();
  return { dead: `its runtime was ${channel.hello.state} when the server came back` };
}
