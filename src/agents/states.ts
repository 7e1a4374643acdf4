import { type AlarmChange, alarmJson, withChanges } from '../core/alarm.ts';
import { messageOf, StateUnsaved } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import type { AgentSaver } from '../instances/live-options.ts';
import { inDatabase } from '../instances/rows.ts';
import type { StateSaver } from '../runtime/call.ts';
import type { Channel } from '../runtime/channel.ts';
import type { InitDurable, WakeReason } from '../runtime/protocol.ts';
import type { Database } from '../storage/database.ts';
import { listAgentAlarms } from '../storage/queries/agent-alarms.ts';
import { findAgentState, saveAgentState } from '../storage/queries/agent-states.ts';
import type { InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';

export interface AgentStatesOptions {
  /** Called at the first successful call of a sandbox. */
  readonly succeeded?: (id: string) => void;
  /** Called after a save that has changed alarms. */
  readonly alarmsChanged?: () => void;
  readonly database: Database;
  /** Absent: each write is a transaction of the database. */
  readonly writes?: Pick<DurableWrites, 'write'>;
  readonly nodeId: string;
  readonly now?: () => number;
}

/** Begin of the reason of an agent's end when a save has failed. */
export const STATE_UNSAVED = 'state could not be saved';

/** Sandbox that is about to start, with the state of its record before. */
export type StartedRef = InstanceRef & Partial<Pick<StoredInstance, 'status' | 'pausedAtMs'>>;

/** The saved states of durable agents. */
export class AgentStates {
  readonly #options: AgentStatesOptions;

  constructor(options: AgentStatesOptions) {
    this.#options = options;
  }

  /** Returns what a runtime gets at its start; undefined: the agent is not durable. */
  async initOf(ref: StartedRef, spec: InstanceSpec, reason: WakeReason): Promise<InitDurable | undefined> {
    const { durable } = spec;
    const { id, epoch, status, pausedAtMs = 0 } = ref;
    if (durable === undefined) return undefined;
    const saved = epoch === 1 ? null : await findAgentState(this.#options.database, id);
    const version = saved?.version ?? 0;
    return {
      state: saved?.state ?? null,
      version,
      schema: durable.schema,
      maxStateBytes: LIMITS.stateBytes,
      listsAlarms: true,
      ...(durable.entries && { entries: durable.entries }),
      wake: {
        reason: epoch === 1 ? 'created' : reason,
        count: epoch - 1,
        slept_at: status === 'SLEEPING' ? new Date(pausedAtMs).toISOString() : null,
        saved_at: saved && new Date(saved.savedAtMs).toISOString(),
        state_version: version,
      },
    };
  }

  /** Returns what saves the state of a running agent whose runtime has this version of it. */
  saverOf({ id, epoch, spec }: Pick<StoredInstance, 'id' | 'epoch' | 'spec'>, version: number): AgentSaver | undefined {
    const schema = durableOf(spec)?.schema;
    if (schema === undefined) return undefined;
    const { database, writes = inDatabase(database), nodeId, now = Date.now, succeeded, alarmsChanged } = this.#options;
    return new Saver(version, {
      write: async (state, next, alarms) => {
        const row =
          state === null ? null : { version: next, schema, bytes: Buffer.byteLength(state), state, saved_at_ms: now() };
        const isWritten = await writes.write(saveAgentState, { id, epoch, nodeId }, row, alarms);
        if (alarms.length > 0) alarmsChanged?.();
        return isWritten;
      },
      listAlarms: async changes => {
        const alarms = withChanges(await listAgentAlarms(database, id), changes);
        return `[${alarms.map(alarm => alarmJson(alarm)).join()}]`;
      },
      succeeded: () => succeeded?.(id),
    });
  }

  /** Returns true if the runtime of a recovered agent has the saved state, or needs none. */
  async agrees({ id, spec }: Pick<StoredInstance, 'id' | 'spec'>, hello: Channel['hello']): Promise<boolean> {
    if (durableOf(spec) === undefined) return true;
    const saved = await findAgentState(this.#options.database, id);
    return hello.stateVersion === (saved?.version ?? 0);
  }
}

/** Returns the member of a stored spec. Parses only specs that may have one: most agents have none. */
function durableOf(spec: string): InstanceSpec['durable'] {
  return spec.includes('"durable":') ? (JSON.parse(spec) as InstanceSpec).durable : undefined;
}

interface SaverParts {
  /** Returns false if the agent has another sandbox by now. */
  readonly write: (state: string | null, version: number, alarms: readonly AlarmChange[]) => Promise<boolean>;
  readonly listAlarms: StateSaver['listAlarms'];
  /** Called once, at the first successful call. */
  readonly succeeded: () => void;
}

/**
 * Saves the state of one sandbox, one write at a time. A document that arrives during a write waits, and a
 * later one takes its place: each is complete.
 */
class Saver implements AgentSaver, StateSaver {
  readonly #parts: SaverParts;
  #hasSucceeded = false;
  /** `performance.now()` until which code keeps the agent awake. */
  #awakeUntilMs = 0;
  #version: number;
  /** Document of the next write; null: it has not changed. */
  #latest: string | null = null;
  #alarms: readonly AlarmChange[] = [];
  #writing: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #failure: StateUnsaved | undefined;
  #reset: (why: string) => void = () => undefined;

  constructor(version: number, parts: SaverParts) {
    this.#version = version;
    this.#parts = parts;
  }

  get version(): number {
    return this.#version;
  }

  get pending(): Promise<void> | undefined {
    return this.#failure === undefined ? (this.#next ?? this.#writing) : Promise.reject(this.#failure);
  }

  get saving(): Promise<void> | undefined {
    return (this.#next ?? this.#writing)?.catch(() => undefined);
  }

  get keptAwakeMs(): number {
    return Math.max(0, this.#awakeUntilMs - performance.now());
  }

  keepAwake(seconds: number): void {
    this.#awakeUntilMs = performance.now() + Math.min(seconds, LIMITS.keepAwakeSeconds) * 1000;
  }

  bind(channel: Channel, reset: (why: string) => void): void {
    this.#reset = reset;
    const { keepAwakeSeconds } = channel.hello;
    if (keepAwakeSeconds !== undefined) this.keepAwake(keepAwakeSeconds);
    channel.saveTo(this);
  }

  async agrees({ stateVersion }: Channel['hello']): Promise<boolean> {
    await this.pending?.catch(() => undefined);
    return this.#failure === undefined && stateVersion === this.#version;
  }

  async listAlarms(changes: readonly AlarmChange[]): Promise<string> {
    await this.pending;
    return await this.#parts.listAlarms(changes);
  }

  succeeded(): void {
    if (this.#hasSucceeded) return;
    this.#hasSucceeded = true;
    this.#parts.succeeded();
  }

  reset(why: string): void {
    this.#failure ??= new StateUnsaved(why, { retryAfterSeconds: 1 });
    this.#reset(why);
  }

  save(state: string | null, alarms: readonly AlarmChange[]): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (state !== null) {
      this.#version += 1;
      this.#latest = state;
    }
    if (alarms.length > 0) this.#alarms = [...this.#alarms, ...alarms];
    if (this.#writing === undefined) return this.#startWrite();
    this.#next ??= this.#writing.then(() => {
      this.#next = undefined;
      return this.#startWrite();
    });
    return this.#next;
  }

  #startWrite(): Promise<void> {
    const writing = this.#saveLatest().finally(() => {
      if (this.#writing === writing) this.#writing = undefined;
    });
    this.#writing = writing;
    return writing;
  }

  async #saveLatest(): Promise<void> {
    const state = this.#latest;
    const alarms = this.#alarms;
    this.#latest = null;
    this.#alarms = [];
    try {
      if (await this.#parts.write(state, this.#version, alarms)) return;
      this.#fail('the agent has another sandbox by now');
    } catch (error) {
      this.#fail(messageOf(error));
    }
    throw this.#failure;
  }

  #fail(why: string): void {
    this.#failure ??= new StateUnsaved(`${STATE_UNSAVED}: ${why}`, { retryAfterSeconds: 1 });
    this.#reset(`${STATE_UNSAVED}: ${why}`);
  }
}
