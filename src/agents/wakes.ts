import type { Instance } from '../core/instance.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { type AgentRecords, toInstance } from './agent-records.ts';
import type { AgentStarts } from './agent-starts.ts';
import { isBeing } from './refusals.ts';

interface AgentWakesOptions {
  readonly starts: AgentStarts;
  readonly records: AgentRecords;
  readonly live: (id: string) => LiveInstance | undefined;
  readonly restart: (id: string) => Promise<Instance>;
}

/** Starts durable agents that have ended, with their saved state, when a client uses them. */
export class AgentWakes {
  readonly #options: AgentWakesOptions;

  constructor(options: AgentWakesOptions) {
    this.#options = options;
  }

  /** Returns true if a use of the agent starts it, or waits for the start that runs. */
  canWake(record: InstanceRecord): boolean {
    const isStarting = this.#options.starts.operations.of(record.id)?.kind === 'restart';
    if (record.status !== 'FAILED' && !isStarting) return false;
    return toInstance(record).spec.durable !== undefined;
  }

  /**
   * Starts the agent and returns its live instance; undefined: it has ended again. All concurrent callers
   * share one start and continue in their order. Fails as a restart does.
   */
  async wake(record: InstanceRecord): Promise<LiveInstance | undefined> {
    const { starts, records, live, restart } = this.#options;
    const { id } = record;
    records.assertHere(record);
    const found = live(id);
    if (found !== undefined) return found;
    const before = starts.operations.of(id);
    if (before === undefined) {
      starts.assertMayStart();
      // Each caller, this one too, waits for the operation itself, so that they continue in their order.
      restart(id).catch(() => undefined);
    } else if (before.kind !== 'restart') throw isBeing(before.kind, id);
    await starts.operations.of(id)?.done;
    return live(id);
  }
}
