import { type Alarm, type AlarmChange, afterAlarm, decideAlarm, type FailedAlarm, isRecurring } from '../core/alarm.ts';
import { Away, messageOf, ServiceError, StateUnsaved } from '../core/error.ts';
import { type CallSink, NO_CALLS_KEPT } from '../core/finished-call.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import { inDatabase } from '../instances/rows.ts';
import { type Backoff, backoffMs } from '../lib/backoff.ts';
import { afterMs } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import { newRequestId } from '../lib/random-ids.ts';
import type { Call } from '../runtime/call.ts';
import type { Database } from '../storage/database.ts';
import { changeAgentAlarms, type DueAlarm, listAgentAlarms, listNextAlarms } from '../storage/queries/agent-alarms.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { type AgentRecords, isDurable } from './agent-records.ts';
import type { AgentAlarmStore, AgentOutcome } from './contract.ts';
import { noAlarm, notDurable } from './refusals.ts';

export interface AgentAlarmsOptions {
  readonly database: Database;
  /** Absent: each write is a transaction of the database. */
  readonly writes?: Pick<DurableWrites, 'write'>;
  readonly nodeId: string;
  readonly log: Log;
  readonly now: () => number;
  readonly records: AgentRecords;
  readonly alarmMissed?: (outcome: 'failed' | 'skipped' | 'dropped') => void;
  readonly callSink?: CallSink;
  readonly alarmFailed?: (failed: FailedAlarm) => void;
  /** Returns the running agent. */
  readonly live: (id: string) => object | undefined;
  /** Starts the agent if it sleeps or has ended. Fails if it does not run then. */
  readonly start: (tenant: string, id: string) => Promise<unknown>;
  readonly invoke: (tenant: string, id: string, call: Call) => Promise<AgentOutcome>;
}

/** Most deliveries at once, and most agents that alarms start at once. Calls of clients start agents too. */
const MOST_DELIVERIES = 64;
const MOST_STARTS = 4;
/** Alarms that one query reads in addition to those that are being delivered. */
const READ_AHEAD = 64;
/** Longest time between two looks at the clock, which may be set. */
const LONGEST_WAIT_MS = 60_000;
/** Pause after a query that failed, and before a delivery that could not begin is tried again. */
const TRY_AGAIN_MS = 5_000;
/** Deliveries before an alarm has failed, and the pauses between them. */
const MOST_ATTEMPTS = 8;
const RETRY: Backoff = { firstMs: 2_000, longestMs: 300_000 };

/**
 * Delivers the alarms of this node's agents. An alarm is stored until the save of its call removes it, so a
 * service that dies delivers it again, and its effect on the state happens once. Only the earliest alarms are
 * in memory.
 */
export class AgentAlarms implements AgentAlarmStore {
  readonly #options: AgentAlarmsOptions;
  readonly #writes: Pick<DurableWrites, 'write'>;
  /** Ids of the due times that are being delivered. */
  readonly #delivering: Set<string> = new Set();
  readonly #startTurns: (() => void)[] = [];
  #starts = 0;
  #isOpen = false;
  #isClosed = false;
  #isLooking = false;
  #looksAgain = false;
  #cancelWait: () => void = () => undefined;

  constructor(options: AgentAlarmsOptions) {
    this.#options = options;
    this.#writes = options.writes ?? inDatabase(options.database);
  }

  async list(tenant: string, id: string): Promise<readonly Alarm[]> {
    await this.#options.records.flushedRecord(tenant, id);
    return await listAgentAlarms(this.#options.database, id);
  }

  async set(tenant: string, id: string, alarm: Alarm): Promise<void> {
    const { records } = this.#options;
    const record = await records.flushedRecord(tenant, id);
    records.assertHere(record);
    if (!isDurable(record)) throw notDurable(id);
    const isWritten =
      record.status !== 'STOPPING' && (await this.#writes.write(changeAgentAlarms, id, [{ kind: 'put', alarm }]));
    if (!isWritten) throw instanceNotFound(id);
    this.look();
  }

  async cancel(tenant: string, id: string, name: string): Promise<void> {
    const alarms = await this.list(tenant, id);
    if (!alarms.some(alarm => alarm.name === name)) throw noAlarm(id, name);
    await this.#writes.write(changeAgentAlarms, id, [{ kind: 'drop', name }]);
    this.look();
  }

  /** Begins to deliver. Without effect if it has begun, or after `close`. */
  start(): void {
    this.#isOpen = !this.#isClosed;
    this.look();
  }

  /** Ends the deliveries that have not begun. The others end like other calls. */
  close(): void {
    this.#isOpen = false;
    this.#isClosed = true;
    this.#cancelWait();
    for (const next of this.#startTurns.splice(0)) next();
  }

  /** Delivers what is due and waits for the next alarm. Called after each change of alarms. */
  look(): void {
    if (!this.#isOpen) return;
    if (this.#isLooking) {
      this.#looksAgain = true;
      return;
    }
    this.#cancelWait();
    this.#isLooking = true;
    void this.#deliverDue().then(waitMs => {
      this.#isLooking = false;
      if (this.#looksAgain) waitMs = 0;
      this.#looksAgain = false;
      if (waitMs === null || !this.#isOpen) return;
      if (waitMs === 0) this.look();
      else this.#cancelWait = afterMs(Math.min(waitMs, LONGEST_WAIT_MS), () => this.look());
    });
  }

  /** Returns the time until the next look; null: a change or the end of a delivery causes it. */
  async #deliverDue(): Promise<number | null> {
    const { database, nodeId, log, now } = this.#options;
    try {
      const limit = this.#delivering.size + READ_AHEAD;
      const alarms = await listNextAlarms(database, nodeId, limit);
      for (const due of alarms) {
        const { id, dueAtMs } = due.alarm;
        if (this.#delivering.has(id)) continue;
        const waitMs = dueAtMs - now();
        if (waitMs > 0) return waitMs;
        if (this.#delivering.size >= MOST_DELIVERIES || !this.#isOpen) return null;
        this.#delivering.add(id);
        void this.#deliver(due).finally(() => {
          this.#delivering.delete(id);
          this.look();
        });
      }
      return alarms.length < limit ? null : 0;
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'cannot read alarms; retrying');
      return TRY_AGAIN_MS;
    }
  }

  /** Delivers an alarm, and writes what follows from a failure. Never rejects. */
  async #deliver(due: DueAlarm): Promise<void> {
    const { log, now, alarmMissed } = this.#options;
    const about = { instanceId: due.agentId, alarm: due.alarm.name };
    try {
      const decision = decideAlarm(due.alarm, newRequestId(), now());
      if (decision.kind === 'skip') {
        log.warn({ ...about, isDropped: decision.isDropped }, 'alarm skipped: it is late');
        await this.#change(due, decision.change);
        alarmMissed?.(decision.isDropped ? 'dropped' : 'skipped');
        if (decision.isDropped) this.#report(due, tooLate(due.alarm, now()));
        return;
      }
      const failure = await this.#run({ ...due, alarm: decision.alarm });
      if (failure === undefined) return;
      await this.#change(due, failure.change);
      alarmMissed?.('failed');
      if (failure.isLast) this.#report(due, failure.reason);
    } catch (error) {
      if (!this.#isOpen || (error instanceof ServiceError && error.code === 'not_found')) return;
      log.warn({ ...about, reason: messageOf(error) }, 'alarm not delivered yet; retrying');
      await this.#postpone(due, error).catch(async () => {
        // The alarm stays due. Without the pause it would be delivered again at once.
        await new Promise<void>(resolve => afterMs(TRY_AGAIN_MS, resolve));
      });
    }
  }

  /**
   * Calls the agent. Returns what follows from a failed attempt. Rejects if the attempt did not begin, or if
   * its save failed.
   */
  async #run({ agentId, tenant, spec, alarm }: DueAlarm): Promise<FailedAttempt | undefined> {
    const { live, invoke, now } = this.#options;
    const startedMs = performance.now();
    if (live(agentId) === undefined) await this.#start(tenant, agentId);
    const { durable } = JSON.parse(spec) as InstanceSpec;
    const hasEntry = (durable?.entries?.alarm ?? '') !== '';
    const call: Call = {
      header: {
        // All attempts are one trace.
        traceId: alarm.id,
        traceparent: '',
        // Stays the same over retries, so that code can pass it on.
        requestId: alarm.id,
        headers: { 'x-rookery-event': 'alarm' },
        ...(hasEntry && { entry: 'alarm' }),
      },
      body: Buffer.from(hasEntry ? eventOf(alarm, now()) : `{"alarm":${eventOf(alarm, now())}}`),
      // The limit of the agent is smaller or equal.
      timeoutMs: LIMITS.functionTimeoutSeconds.max * 1000,
      settles: () => [afterAlarm(alarm, newRequestId(), now())],
    };
    const attempt: Attempt = { tenant, agentId, alarm, call, startedMs, startMs: performance.now() - startedMs };
    try {
      const outcome = await invoke(tenant, agentId, call);
      if (outcome.ok) {
        this.#record(attempt, outcome, 'ok', '');
        return undefined;
      }
      this.#record(attempt, outcome, String(outcome.code), outcome.text);
      return this.#afterFailure(agentId, alarm, outcome.text);
    } catch (error) {
      if (!hasBegun(error)) throw error;
      this.#record(attempt, null, error instanceof ServiceError ? error.code : 'internal', messageOf(error));
      return this.#afterFailure(agentId, alarm, messageOf(error));
    }
  }

  /** Adds an attempt to the history of calls. A retry has an id of its own there. */
  #record(attempt: Attempt, outcome: AgentOutcome | null, code: string, error: string): void {
    const { callSink = NO_CALLS_KEPT } = this.#options;
    const { tenant, agentId, alarm, call, startedMs, startMs } = attempt;
    const elapsedMs = performance.now() - startedMs;
    if (!callSink.wants(agentId, code === 'ok', elapsedMs)) return;
    const runMs = outcome === null ? 0 : outcome.runMicros / 1000;
    callSink.push({
      id: alarm.attempt === 0 ? alarm.id : newRequestId(),
      traceId: alarm.id,
      tenant,
      caller: `alarm ${alarm.name}`,
      traceparent: undefined,
      kind: 'agent',
      target: agentId,
      instanceId: agentId,
      mode: 'alarm',
      endedAtMs: Date.now(),
      elapsedMs,
      stages: outcome && { queueMs: Math.max(0, elapsedMs - startMs - runMs), placeMs: 0, startMs, loadMs: 0, runMs },
      code,
      input: call.body,
      output: outcome?.ok ? outcome.data : null,
      spans: outcome?.spans,
      error,
    });
  }

  /** Starts an agent when it is its turn. */
  async #start(tenant: string, id: string): Promise<void> {
    if (this.#starts >= MOST_STARTS) await new Promise<void>(resolve => this.#startTurns.push(resolve));
    else this.#starts += 1;
    try {
      await this.#options.start(tenant, id);
    } finally {
      const next = this.#startTurns.shift();
      if (next === undefined) this.#starts -= 1;
      else next();
    }
  }

  #afterFailure(agentId: string, alarm: Alarm, text: string): FailedAttempt {
    const { log, now } = this.#options;
    const { name, id } = alarm;
    const attempt = alarm.attempt + 1;
    const reason = text.slice(0, LAST_ERROR_CHARS);
    const to = (change: Partial<Alarm>) =>
      ({ kind: 'change', name, id, to: { ...change, lastError: reason } }) as const;
    if (attempt < MOST_ATTEMPTS) {
      const { scheduledAtMs, missed } = alarm;
      const dueAtMs = now() + backoffMs(RETRY, attempt);
      return { change: to({ scheduledAtMs, missed, attempt, dueAtMs }), reason, isLast: false };
    }
    log.warn({ instanceId: agentId, alarm: name, attempts: attempt, reason }, 'alarm has failed');
    if (isRecurring(alarm.rule)) {
      const change = afterAlarm(alarm, newRequestId(), now(), { lastError: reason });
      if (change.kind === 'change') return { change, reason, isLast: true };
    }
    return { change: to({ attempt, hasFailed: true }), reason, isLast: true };
  }

  /** Reports an alarm that is given up. */
  #report({ tenant, agentId, spec, alarm }: DueAlarm, reason: string): void {
    const { namespace, name } = JSON.parse(spec) as InstanceSpec;
    this.#options.alarmFailed?.({ tenant, agentId, namespace, name, alarm: alarm.name, reason });
  }

  /** Tries an alarm whose delivery did not begin again, as its agent asks, without counting an attempt. */
  async #postpone(due: DueAlarm, error: unknown): Promise<void> {
    const { name, id } = due.alarm;
    const seconds = error instanceof ServiceError ? error.retryAfterSeconds : undefined;
    const dueAtMs = this.#options.now() + (seconds === undefined ? TRY_AGAIN_MS : seconds * 1000);
    await this.#change(due, { kind: 'change', name, id, to: { dueAtMs } });
  }

  async #change({ agentId }: DueAlarm, change: AlarmChange): Promise<void> {
    await this.#writes.write(changeAgentAlarms, agentId, [change]);
  }
}

const LAST_ERROR_CHARS = 1_000;

/** A delivery that has begun. */
interface Attempt extends Pick<DueAlarm, 'tenant' | 'agentId' | 'alarm'> {
  readonly call: Call;
  /** Begin of the delivery, by `performance.now()`. */
  readonly startedMs: number;
  /** Time that the start of the agent took. */
  readonly startMs: number;
}

/** Failed attempt. `isLast`: no further one follows. */
interface FailedAttempt {
  readonly change: AlarmChange;
  readonly reason: string;
  readonly isLast: boolean;
}

function tooLate({ scheduledAtMs }: Alarm, nowMs: number): string {
  return `dropped: it was ${Math.round((nowMs - scheduledAtMs) / 1000)} s late, more than its max_late_seconds`;
}

/** Returns true if a call that was rejected may have run. */
function hasBegun(error: unknown): boolean {
  if (!(error instanceof ServiceError) || error instanceof StateUnsaved || error instanceof Away) return false;
  return error.code === 'deadline_exceeded' || error.message.startsWith('instance exited');
}

/** Returns what the agent gets, as JSON. */
function eventOf(alarm: Alarm, nowMs: number): string {
  const { name, id, payload, scheduledAtMs, attempt, missed } = alarm;
  const event = {
    name,
    id,
    scheduled_at: new Date(scheduledAtMs).toISOString(),
    fired_at: new Date(nowMs).toISOString(),
    attempt: attempt + 1,
    missed,
  };
  return `${JSON.stringify(event).slice(0, -1)},"payload":${payload}}`;
}
