import type { Log } from '../lib/log.ts';
import type { Channel } from '../runtime/channel.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import type { CallLimiter } from './call-limiter.ts';
import type { SilenceTimes } from './silence-times.ts';

/** Reason to end a runtime whose last save did not arrive. */
export const STATE_LOST = 'instance exited: its last change of the state was not saved';

/** Saves the state of a durable agent, and compares it with that of a runtime. */
export interface AgentSaver {
  /** Saves what arrives over `channel`. `reset` ends the sandbox. */
  bind(channel: Channel, reset: (why: string) => void): void;
  /** Resolves when every accepted save was tried; undefined: none is pending. Never rejects. */
  readonly saving: Promise<void> | undefined;
  /** Time from now during which code keeps the agent awake, milliseconds. */
  readonly keptAwakeMs: number;
  /** Returns true if the runtime has the saved state and no other. */
  agrees(hello: Channel['hello']): Promise<boolean>;
}

export interface LiveInstanceOptions {
  readonly id: string;
  readonly epoch: number;
  readonly owner: StoredInstance['owner'];
  readonly tenant: string;
  readonly driver: SandboxDriver;
  readonly handle: SandboxHandle;
  /** Authenticates connections to the runtime. */
  readonly secret: string;
  /** Open channel with an initialized runtime. */
  readonly channel: Channel;
  readonly concurrency: number;
  /** Longest duration of a call in milliseconds, waiting included; a call may request less. */
  readonly maxCallMs: number;
  readonly limiter: CallLimiter;
  readonly silence: SilenceTimes;
  readonly log: Log;
  /**
   * Delays the watch of the sandbox. At the start of a service many instances are adopted, and each watch
   * opens a connection and wakes a process. Until then the channel reports the end of the sandbox.
   */
  readonly isWatchedLater?: boolean;
  /** Saves the state of a durable agent. */
  readonly saver?: AgentSaver | undefined;
}

/** End of an instance that ended by itself. */
export interface Ending {
  /** Sentence such as `instance exited: exit code 3`. */
  readonly reason: string;
  /** Exit code; null: the sandbox was killed, or the code is unknown. */
  readonly exitCode: number | null;
}
