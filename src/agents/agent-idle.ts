import { messageOf } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import { pause } from '../lib/backoff.ts';
import { afterMs } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { AgentTable, AgentUse } from './agent-table.ts';
import { isServerBusy } from './busy-probe.ts';

/** Checks during an idle time, and bounds of the time between two of them. Calls are noticed at a check. */
const CHECKS = 20;
const SHORTEST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 10_000;
/** Share of a core above which the processes of an agent are at work. */
const WORKING_SHARE = 0.05;
/** Time without use after which an agent may be put to sleep for another one. */
const YIELD_IDLE_MS = 1_000;
/** Time in which such an agent must not compute. */
const YIELD_LOOK_MS = 20;

export interface AgentIdleOptions {
  readonly table: AgentTable;
  readonly log: Log;
  /** Returns the running agent; undefined: it is paused, has ended or is deleted. */
  readonly live: (id: string) => LiveInstance | undefined;
  /** Deletes, pauses or puts an agent to sleep, as its create says. */
  readonly expire: (id: string) => Promise<void>;
}

/**
 * Ends agents that nothing has used for their idle time. The time begins with the start, with a resume and
 * with the start of a service. A running call, command or stream is use until it ends,
 * and so is work that the server itself reports (`HealthyBusy` of the profile `agentcore`). For an agent that
 * would sleep, so is the processor time of its processes.
 */
export class AgentIdle {
  readonly #options: AgentIdleOptions;
  #isClosed = false;

  constructor(options: AgentIdleOptions) {
    this.#options = options;
  }

  /** Watches an agent that runs, if it has an idle time or is durable. An earlier watch ends. */
  watch({ id, spec }: { readonly id: string; readonly spec: IdleSpec }): void {
    this.cancel(id);
    const idleMs = idleTimeOf(spec);
    if (idleMs === undefined || this.#isClosed) return;
    const { httpProfile: profile } = spec;
    const use: AgentUse = {
      ...{ idleMs, profile, open: 0, usedMs: performance.now(), calls: 0 },
      ...{ countsWork: sleepsWhenIdle(spec), work: undefined },
      cancel: () => undefined,
    };
    this.#options.table.set(id, { use });
    if (Number.isFinite(idleMs)) this.#wait(id, use);
  }

  /** Returns the number of open commands, streams and other accesses of an agent that is watched. */
  openAccesses(id: string): number {
    return this.#options.table.get(id)?.use?.open ?? 0;
  }

  /** Ends the watch of an agent that is deleted or paused. */
  cancel(id: string): void {
    const { table } = this.#options;
    table.get(id)?.use?.cancel();
    table.set(id, { use: undefined });
  }

  close(): void {
    this.#isClosed = true;
    for (const [id] of this.#options.table.entries()) this.cancel(id);
  }

  /** Runs an access to an agent; the agent is in use until the access and its stream have ended. */
  async during<T>(id: string, access: () => Promise<T>): Promise<T> {
    const use = this.#options.table.get(id)?.use;
    return use === undefined ? await access() : await usedDuring(use, access);
  }

  /** Returns an access whose operations count as use. */
  counted(id: string, access: SandboxAccess): SandboxAccess {
    const useOf = () => this.#options.table.get(id)?.use;
    const use = useOf();
    if (use === undefined) return access;
    // Otherwise the agent could end before the first operation.
    use.usedMs = performance.now();
    return countedAccess(access, useOf);
  }

  /**
   * Puts the agent to sleep that is idle longest. Only agents that fall asleep by themselves, have been idle
   * for a second and do not compute count. Returns false if there is none. Never rejects.
   */
  async makeRoom(): Promise<boolean> {
    for (const { id, live, use } of this.#mayYield()) {
      const before = await readWork(live);
      await pause(YIELD_LOOK_MS);
      if (hasWorked(before, await readWork(live))) continue;
      if (this.#options.table.get(id)?.use !== use || isInUse(live, use)) continue;
      try {
        await this.#options.expire(id);
        this.#options.log.info({ instanceId: id }, 'idle agent sleeps to make room');
        return true;
      } catch {
        // It came into use.
      }
    }
    return false;
  }

  /** Returns the agents that `makeRoom` may put to sleep, the longest idle first. */
  #mayYield(): readonly { readonly id: string; readonly live: LiveInstance; readonly use: AgentUse }[] {
    const beforeMs = performance.now() - YIELD_IDLE_MS;
    return this.#options.table
      .entries()
      .flatMap(([id, { use }]) => {
        if (use === undefined || !use.countsWork || !Number.isFinite(use.idleMs) || use.usedMs > beforeMs) return [];
        const live = this.#options.live(id);
        return live === undefined || isInUse(live, use) ? [] : [{ id, live, use }];
      })
      .sort((a, b) => a.use.usedMs - b.use.usedMs);
  }

  #wait(id: string, use: AgentUse): void {
    const waitMs = Math.min(Math.max(use.idleMs / CHECKS, SHORTEST_WAIT_MS), LONGEST_WAIT_MS, use.idleMs);
    use.cancel = afterMs(waitMs, () => void this.#check(id, use));
  }

  /** Ends the agent if its idle time is over. Never rejects. */
  async #check(id: string, use: AgentUse): Promise<void> {
    const live = this.#options.live(id);
    if (live === undefined) return this.cancel(id);
    if (isInUse(live, use)) use.usedMs = performance.now();
    use.calls = live.callsBegun;
    if (performance.now() - use.usedMs < use.idleMs) {
      use.work = undefined;
      return this.#wait(id, use);
    }
    const isBusy = await isServerBusy(() => live.driver.access?.(live.handle), use.profile);
    const isWorking = use.countsWork ? await this.#isWorking(live, use) : false;
    if (isBusy || isWorking === true) use.usedMs = performance.now();
    // The agent was deleted or paused, or a call began, while its server answered.
    if (this.#options.table.get(id)?.use !== use) return;
    const isUsed = performance.now() - use.usedMs < use.idleMs || live.inFlight > 0;
    if (isUsed || isWorking === null) return this.#wait(id, use);
    try {
      this.#options.log.info({ instanceId: id }, 'idle time of agent is over');
      await this.#options.expire(id);
      if (this.#options.table.get(id)?.use === use) this.cancel(id);
    } catch (error) {
      if (this.#isClosed || this.#options.table.get(id)?.use !== use) return;
      this.#options.log.warn({ instanceId: id, reason: messageOf(error) }, 'end of idle agent failed; retrying');
      this.#wait(id, use);
    }
  }

  /**
   * Returns true if the processes of an agent have worked since the check before; null at the first check,
   * which has nothing to compare. Never rejects.
   */
  async #isWorking(live: LiveInstance, use: AgentUse): Promise<boolean | null> {
    const before = use.work;
    use.work = await readWork(live);
    return before === undefined && use.work !== undefined ? null : hasWorked(before, use.work);
  }
}

/** Returns true if an agent is in use now, or was since the last check. */
function isInUse(live: LiveInstance, use: AgentUse): boolean {
  return live.inFlight > 0 || use.open > 0 || live.callsBegun !== use.calls || live.keptAwakeMs > 0;
}

/** Returns the processor time of an agent until now; undefined: it cannot be read. Never rejects. */
async function readWork({ driver, handle }: LiveInstance): Promise<AgentUse['work']> {
  const stats = await driver.stats(handle).catch(() => undefined);
  return stats && { atMs: performance.now(), cpuMicros: stats.cpuMicros };
}

/** Returns true if processes have worked between two readings; false if one is missing. */
function hasWorked(before: AgentUse['work'], now: AgentUse['work']): boolean {
  if (before === undefined || now === undefined) return false;
  return now.cpuMicros - before.cpuMicros > (now.atMs - before.atMs) * 1000 * WORKING_SHARE;
}

type IdleSpec = Pick<InstanceSpec, 'idleMs' | 'httpProfile' | 'durable' | 'ports'>;

/** Returns true if the agent sleeps at the end of its idle time. */
export function sleepsWhenIdle({ idleMs, durable }: Pick<InstanceSpec, 'idleMs' | 'durable'>): boolean {
  return durable !== undefined && idleMs === undefined;
}

/**
 * Returns the idle time of an agent, infinite if its uses are only counted; undefined: they are not. An agent
 * with published ports never sleeps by itself, because a connection to a published port cannot wake it.
 */
function idleTimeOf({ idleMs, durable, ports }: IdleSpec): number | undefined {
  if (idleMs !== undefined || durable === undefined) return idleMs;
  const { sleepMs = 0 } = durable;
  return sleepMs === 0 || ports.length > 0 ? Number.POSITIVE_INFINITY : sleepMs;
}

async function usedDuring<T>(use: AgentUse, access: () => Promise<T>): Promise<T> {
  use.open += 1;
  let isOpen = true;
  const end = () => {
    if (!isOpen) return;
    isOpen = false;
    use.open -= 1;
    use.usedMs = performance.now();
  };
  try {
    const result = await access();
    if (!endsLater(result, end)) end();
    return result;
  } catch (error) {
    end();
    throw error;
  }
}

/** Calls `end` when an opened stream or command has ended. Returns false if `result` is neither. */
function endsLater(result: unknown, end: () => void): boolean {
  if (typeof result !== 'object' || result === null) return false;
  if ('once' in result && typeof result.once === 'function') {
    result.once('close', end);
    return true;
  }
  if ('ended' in result && result.ended instanceof Promise) {
    result.ended.then(end, end);
    return true;
  }
  return false;
}

/** Counts each operation as use. The platform's own programs run for ever and do not count. */
function countedAccess(access: SandboxAccess, useOf: () => AgentUse | undefined): SandboxAccess {
  return new Proxy(access, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      return (...args: readonly unknown[]) => {
        const run = () => member.apply(target, args);
        const use = useOf();
        return use === undefined || isHidden(args[0]) ? run() : usedDuring(use, async () => await run());
      };
    },
  });
}

function isHidden(request: unknown): boolean {
  return typeof request === 'object' && request !== null && 'hidden' in request && request.hidden === true;
}
