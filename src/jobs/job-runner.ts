import { randomUUID } from 'node:crypto';
import { failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import type { Job } from '../core/job.ts';
import { type ResolvedVariables, resolveVariables, type SecretSource } from '../core/secret.ts';
import type { Command } from '../instances/command.ts';
import type { Instances } from '../instances/instances.ts';
import { sharedController } from '../lib/linked-signal.ts';
import type { Log } from '../lib/log.ts';
import { newSecret } from '../lib/random-ids.ts';
import { msUntilStored } from '../lib/stored-time.ts';
import type { ExitResult, SandboxDriver } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import {
  claimJob,
  finishJob,
  type JobEnd,
  markJobRunning,
  readJob,
  requeueJob,
  type StoredJob,
  setJobStopReason,
} from '../storage/queries/jobs.ts';
import type { StopReason } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import { type JobNode, ownerOf } from './cluster.ts';
import type { JobChanges } from './job-changes.ts';
import type { JobFiles, PlacedFiles } from './job-files.ts';
import type { JobLogs } from './job-logs.ts';
import type { JobMetrics } from './job-metrics.ts';
import {
  type JobParts,
  type JobPython,
  type JobSandboxRules,
  type PlacedEnvironment,
  toJobSandbox,
} from './job-sandbox.ts';
import { endOf, failedEnd, NOT_STARTED, RUNNING_MESSAGE, retryDelayMs, stoppedEnd, TRY_LATER_MS } from './outcome.ts';
import type { PythonEnvironments } from './python-environments.ts';

export interface JobRunnerOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  readonly instances: Instances;
  readonly driver: () => Promise<SandboxDriver>;
  readonly files: JobFiles;
  readonly environments: PythonEnvironments;
  /** Checks what this machine can do, before the first job. */
  readonly prepare: () => Promise<void>;
  /** Returns the interpreter of jobs; null: this machine has none. */
  readonly python: () => Promise<JobPython | null>;
  /** Absent: no secrets exist. */
  readonly secrets?: SecretSource;
  readonly logs: JobLogs;
  readonly changes: JobChanges;
  readonly metrics: JobMetrics;
  readonly rules: JobSandboxRules;
  readonly startTimeoutMs: number;
  readonly stopGraceMs: number;
  readonly log: Log;
}

/**
 * Outcome of a run. `over`: the job has ended. `left`: the server ends, and the next one continues.
 * `againAtMs`: the job must run again at that time.
 */
export type RunResult = 'over' | 'left' | { readonly againAtMs: number };

interface Live {
  readonly job: Job;
  command: Command | null;
  stopGraceMs: number | null;
  /** True if the job must end as stopped, even if that could not be stored. */
  isStopped: boolean;
}

/** Time for which failed starts are retried when the reason may pass. */
const PATIENCE_MS = 300_000;
/**
 * Gap between failed starts, in addition to the duration of a start, above which they have separate causes.
 */
const PAUSE_BETWEEN_MS = 60_000;
const LAST_LINES = 10;
const MAX_STOP_GRACE_MS = 3_600_000;

/**
 * Runs one attempt of a job, from its files to its end. Never rejects: a failure becomes the end of the job.
 */
export class JobRunner {
  readonly #options: JobRunnerOptions;
  readonly #live = new Map<number, Live>();
  readonly #running = new Set<number>();
  /** Jobs that exceeded their timeout. */
  readonly #late = new Set<number>();
  readonly #closing = sharedController();
  #startsMore = true;
  /** Times of the first and the last of consecutive failed starts; undefined after a successful start. */
  #failing: { readonly sinceMs: number; lastMs: number } | undefined;

  constructor(options: JobRunnerOptions) {
    this.#options = options;
  }

  /** Number of jobs that are RUNNING. Jobs whose files or sandboxes are being prepared do not count. */
  get running(): number {
    return this.#running.size;
  }

  /** Runs a waiting job. `signal` aborts when the job was stopped before it started. */
  async run(stored: StoredJob, signal: AbortSignal): Promise<RunResult> {
    const { job } = stored;
    const { pip } = job.spec.runtimeEnv;
    const { environments, files } = this.#options;
    let python: JobPython | null = null;
    let environment: PlacedEnvironment | null = null;
    let result: RunResult = 'left';
    try {
      let placed: PlacedFiles;
      let variables: ResolvedVariables;
      try {
        const notYet = await this.#notPrepared(job);
        if (notYet !== null) {
          if (signal.aborted) result = 'over';
          else if (this.#startsMore) result = await this.#tryLater(job, notYet);
          return result;
        }
        variables = await resolveVariables(job.tenant, job.spec.runtimeEnv.envVars, this.#options.secrets);
        placed = await files.place(job);
        python = await this.#options.python();
        if (pip !== null) environment = await this.#environment(job, pip, python);
      } catch (error) {
        if (!signal.aborted && this.#startsMore) {
          const message = `runtime_env setup failed: ${messageOf(error)}`;
          result = await this.#end(job, failedEnd('RUNTIME_ENV_SETUP_FAILURE', message));
        } else if (signal.aborted) result = 'over';
        return result;
      }
      if (signal.aborted) result = 'over';
      else if (this.#startsMore) result = await this.#start(job, { files: placed, python, environment, variables });
    } catch (error) {
      result = await this.#fault(job, error);
    } finally {
      if (environment !== null && pip !== null && python !== null) environments.release(job.tenant, pip, python);
      if (result !== 'left') await this.#removeFiles(job);
    }
    return result;
  }

  /** Continues a job that an earlier server had started or was starting. */
  async adopt(stored: StoredJob): Promise<RunResult> {
    const { job } = stored;
    const { pip } = job.spec.runtimeEnv;
    const live: Live = { job, command: null, stopGraceMs: null, isStopped: false };
    this.#live.set(job.sequence, live);
    if (job.status === 'RUNNING') this.#running.add(job.sequence);
    let result: RunResult = 'left';
    // Runs concurrently, because a running job needs neither a zygote nor an interpreter of this service.
    const held = pip === null ? null : this.#options.python();
    void held?.then(python => python && pip && this.#options.environments.hold(job.tenant, pip, python));
    try {
      const found = await this.#options.instances.commands.recover(job.instanceId, this.#closing.signal);
      // A job that had begun would be RUNNING or still have its instance. The server died before it could
      // requeue the job.
      if (found === 'never' || (found === 'gone' && job.status === 'PENDING')) {
        result = await this.#neverBegan(job);
        return result;
      }
      if (found === 'gone') {
        result = await this.#end(job, endOf({ ...GONE, atMs: Date.now() }, stored.stopReason, job.spec.rules, ''));
        return result;
      }
      live.command = found;
      if (job.status === 'PENDING' && !(await this.#begin(job, pidOf(found)))) {
        result = this.#giveUp(found);
        return result;
      }
      // Read again: a stop that arrived before the job was live here has only stored its reason.
      const now = await this.#stored(job);
      if (now !== null && now.stopReason !== '') this.#stopLive(live, this.#graceOf(job));
      else if (live.stopGraceMs !== null) this.#stopLive(live, live.stopGraceMs);
      result = await this.#watch(job, found);
    } catch (error) {
      result = await this.#fault(job, error);
    } finally {
      this.#forget(job);
      void held?.then(python => python && pip && this.#options.environments.release(job.tenant, pip, python));
      if (result !== 'left') await this.#removeFiles(job);
    }
    return result;
  }

  /** Ends the running command of a job. The reason is already stored. */
  stop(job: Job): void {
    const live = this.#live.get(job.sequence);
    if (live) this.#stopLive(live, this.#graceOf(job));
  }

  /** Ends the running command of a job whose stop reason may not be stored. */
  end(job: Job): void {
    const live = this.#live.get(job.sequence);
    if (live) live.isStopped = true;
    this.stop(job);
  }

  /** Returns the jobs whose command runs. */
  begun(): readonly Job[] {
    return [...this.#live.values()].filter(({ command }) => command !== null).map(({ job }) => job);
  }

  /** Ends a job after another node stored a stop reason. Does nothing when it was already stopped here. */
  stopOnce(job: Job): void {
    const live = this.#live.get(job.sequence);
    if (live && live.stopGraceMs === null) this.#stopLive(live, this.#graceOf(job));
  }

  /** Ends the command of a job at once, because this node does not own the job any more. */
  abandon(sequence: number): void {
    const live = this.#live.get(sequence);
    if (live) this.#stopLive(live, 0);
  }

  /** Prevents further starts. Jobs that have not begun wait for the next server. */
  startNoMore(): void {
    this.#startsMore = false;
    this.#options.environments.close();
  }

  /** Detaches from all jobs; they continue to run. */
  close(): void {
    this.startNoMore();
    this.#closing.abort();
  }

  /**
   * Returns why this machine cannot run jobs yet. Null when it can. Throws when retrying is not worthwhile.
   */
  async #notPrepared(job: Job): Promise<unknown> {
    try {
      await this.#options.prepare();
      return null;
    } catch (error) {
      this.#warn(job, error, 'cannot create sandbox of job');
      const mayPass = error instanceof ServiceError && error.code === 'unavailable';
      if (mayPass && this.#isPatient()) return error;
      throw error;
    }
  }

  /** Returns true while a failure that may pass is worth retrying, for at most `PATIENCE_MS`. */
  #isPatient(): boolean {
    const nowMs = performance.now();
    // A long gap without failures means that this is a new shortage.
    const apartMs = this.#options.startTimeoutMs + PAUSE_BETWEEN_MS;
    if (this.#failing === undefined || nowMs - this.#failing.lastMs > apartMs)
      this.#failing = { sinceMs: nowMs, lastMs: nowMs };
    this.#failing.lastMs = nowMs;
    return nowMs - this.#failing.sinceMs < PATIENCE_MS;
  }

  /** Requeues a job of which nothing has run. The next try is not another attempt. */
  async #tryLater(job: Job, why: unknown): Promise<RunResult> {
    const notBeforeMs = Date.now() + TRY_LATER_MS;
    const message = `${NOT_STARTED} Its sandbox could not be started yet; the service retries: ${messageOf(why)}`;
    return await this.#requeue(job, { attempt: job.attempt, notBeforeMs, message });
  }

  async #environment(job: Job, pip: NonNullable<Job['spec']['runtimeEnv']['pip']>, python: JobPython | null) {
    if (this.#options.rules.rootfs === 'image') {
      throw failedPrecondition('pip is not possible where jobs run in an image: put the packages into the image');
    }
    if (python === null) throw new Error('pip needs Python, and none was found on this machine');
    const { logs, environments } = this.#options;
    await logs.beginSetup(job.sequence, job.attempt);
    try {
      return await environments.get(job.tenant, pip, python, text => logs.addSetup(job.sequence, job.attempt, text));
    } finally {
      logs.endSetup(job.sequence, job.attempt);
    }
  }

  async #start(job: Job, parts: JobParts): Promise<RunResult> {
    const { instances, writes, driver: getDriver, rules, startTimeoutMs } = this.#options;
    const driver = await getDriver();
    const secret = newSecret();
    const claimed: Job = { ...job, instanceId: randomUUID() };
    const sandbox = toJobSandbox(job, claimed.instanceId, secret, parts, rules);
    const owner = { kind: 'job', key: String(job.sequence) } as const;
    const intent = instances.draft({ owner, tenant: job.tenant, sandboxType: driver.name, sandbox });
    const live: Live = { job, command: null, stopGraceMs: null, isStopped: false };
    this.#live.set(job.sequence, live);
    const release = instances.hold(intent.id);
    try {
      // Stored before the start: after a crash only the sandbox itself can tell whether it has begun.
      const claim = () => writes.write(claimJob, job.sequence, ownerOf(this.#options.node), intent);
      if (!(await this.#written(job, claim))) return 'over';
      if (!this.#startsMore) {
        await this.#requeue(claimed, { attempt: job.attempt, notBeforeMs: 0, message: job.message });
        return 'left';
      }
      let command: Command | null;
      try {
        command = await instances.commands.run(
          intent,
          { driver, sandbox },
          AbortSignal.timeout(startTimeoutMs),
          this.#closing.signal,
        );
      } catch (error) {
        if (this.#closing.signal.aborted) return 'left';
        // `unavailable` from the driver guarantees that nothing of the job has run.
        const mayPass = error instanceof ServiceError && error.code === 'unavailable';
        if (mayPass && this.#isPatient()) return await this.#tryLater(claimed, error);
        return await this.#end(
          claimed,
          failedEnd('JOB_SUPERVISOR_ACTOR_START_FAILURE', `Job could not be started: ${messageOf(error)}`),
        );
      }
      if (command === null) return 'left';
      this.#failing = undefined;
      live.command = command;
      if (!(await this.#begin(claimed, pidOf(command)))) return this.#giveUp(command);
      if (live.stopGraceMs !== null) this.#stopLive(live, live.stopGraceMs);
      return await this.#watch(claimed, command);
    } finally {
      release();
      this.#forget(claimed);
    }
  }

  /** Marks a job as RUNNING. Returns false when another process took or ended it during the start. */
  async #begin(job: Job, pid: string): Promise<boolean> {
    const { database, metrics, changes } = this.#options;
    const startedAtMs = Date.now();
    const running = {
      instanceId: job.instanceId,
      pid,
      message: RUNNING_MESSAGE,
      startedAtMs,
    };
    if (!(await this.#written(job, () => markJobRunning(database, job.sequence, running)))) return false;
    this.#running.add(job.sequence);
    if (job.attempt === 1) metrics.started(Math.max(0, startedAtMs - job.submittedAtMs));
    changes.changed(job, { status: 'RUNNING', message: RUNNING_MESSAGE });
    return true;
  }

  /** Removes the command of a job that this node does not own any more. The record stays unchanged. */
  #giveUp(command: Command): RunResult {
    void this.#options.instances.commands.remove(command);
    return 'over';
  }

  async #watch(job: Job, command: Command): Promise<RunResult> {
    const disarm = await this.#armTimeout(job);
    let exit: ExitResult | null;
    try {
      exit = await command.exited(this.#closing.signal);
    } finally {
      // Time after the exit does not count as time of the command.
      await disarm();
    }
    if (exit === null) return 'left';
    return await this.#finish(job, command, exit);
  }

  async #finish(job: Job, command: Command, exit: ExitResult): Promise<RunResult> {
    const all = { tail: null, sinceMs: null, follow: false };
    const never = new AbortController().signal;
    // Stored before the end is reported, so that a client that sees the end finds the whole log.
    const keep = () => this.#options.logs.archive(job.sequence, job.attempt, command.logs(all, never));
    await this.#written(job, keep).catch(error => this.#warn(job, error, 'cannot keep log of job'));
    if (this.#closing.signal.aborted) return 'left';
    const isGood = exit.code === 0 && exit.signal === null;
    const lastLines = isGood ? '' : await textOf(command.logs({ ...all, tail: LAST_LINES }, never));
    const stored = await this.#stored(job);
    const asked = stored?.stopReason || this.#unwrittenReason(job);
    // If no server ran meanwhile, the timeout may have passed only after the command had ended in time.
    const isInTime = asked === 'timeout' && endedInTime(exit, stored?.job.startedAtMs, job.spec.rules.timeoutMs);
    const stopReason = isInTime ? '' : asked;
    const end = endOf(exit, stopReason, job.spec.rules, lastLines);
    const startedAtMs = stored?.job.startedAtMs ?? end.endedAtMs;
    this.#options.metrics.attempted(end.status, Math.max(0, end.endedAtMs - startedAtMs));
    const result = await this.#end(job, end, stopReason === '');
    void this.#options.instances.commands.remove(command);
    return result;
  }

  /** Returns the stop reason of a job when it could not be stored. */
  #unwrittenReason({ sequence }: Job): StopReason {
    if (this.#live.get(sequence)?.isStopped === true) return 'stopped';
    return this.#late.has(sequence) ? 'timeout' : '';
  }

  /** Stores the end of a job, or requeues it when it failed and has attempts left. */
  async #end(job: Job, end: JobEnd, mayRetry = false): Promise<RunResult> {
    const { writes, node, changes, metrics } = this.#options;
    const { rules } = job.spec;
    if (mayRetry && end.status === 'FAILED' && job.attempt <= rules.retries) {
      const delayMs = retryDelayMs(rules, job.attempt);
      const again = {
        attempt: job.attempt + 1,
        notBeforeMs: Date.now() + delayMs,
        message: `Attempt ${job.attempt} of ${rules.retries + 1} failed; the next one starts in ${delayMs} ms. ${end.message}`,
      };
      return await this.#requeue(job, again);
    }
    if (await this.#written(job, () => writes.write(finishJob, job.sequence, node.id, end))) {
      metrics.ended(end.status);
      changes.changed(job, end);
    } else changes.emit(job.sequence);
    return 'over';
  }

  /** Requeues a job whose server died before anything of the job had run. */
  async #neverBegan(job: Job): Promise<RunResult> {
    const again = { attempt: job.attempt, notBeforeMs: 0, message: job.message };
    return await this.#requeue(job, again);
  }

  async #requeue(job: Job, again: Parameters<typeof requeueJob>[3]): Promise<RunResult> {
    const { writes, node, changes, metrics } = this.#options;
    const stopped = stoppedEnd();
    const requeued = await this.#written(job, () => writes.write(requeueJob, job.sequence, node.id, again, stopped));
    if (requeued === 'waits') {
      changes.changed(job, { status: 'PENDING', message: again.message, attempt: again.attempt });
      return { againAtMs: again.notBeforeMs };
    }
    if (requeued === 'stopped') {
      metrics.ended('STOPPED');
      changes.changed(job, stopped);
    } else changes.emit(job.sequence);
    return 'over';
  }

  /** Repeats a write about a job until it succeeds. The job keeps its slot meanwhile. */
  #written<T>(job: Job, write: () => Promise<T>): Promise<T> {
    return untilWritten(write, this.#closing.signal, error =>
      this.#warn(job, error, 'cannot write new state of job; retrying'),
    );
  }

  /**
   * Reads the record of a job, and retries while the database is unavailable. A failed read does not fail the
   * job.
   */
  #stored(job: Job): Promise<StoredJob | null> {
    return untilWritten(
      () => readJob(this.#options.database, job.sequence),
      this.#closing.signal,
      error => this.#warn(job, error, 'cannot read job; retrying'),
    );
  }

  /**
   * Ends the job when its timeout has passed. The returned function cancels the timer, and resolves after the
   * last write of a timeout that has begun.
   */
  async #armTimeout(job: Job): Promise<() => Promise<void>> {
    const { timeoutMs } = job.spec.rules;
    if (timeoutMs === 0) return async () => undefined;
    const stored = await this.#stored(job);
    const startedAtMs = stored?.job.startedAtMs ?? Date.now();
    let ending: Promise<void> | undefined;
    const end = async () => {
      // Also kept in memory: a job that fills the disk must end although nothing can be stored.
      this.#late.add(job.sequence);
      await this.#options.writes
        .write(setJobStopReason, job.sequence, 'timeout')
        .catch(error => this.#warn(job, error, 'cannot write why job is stopped'));
      this.stop(job);
    };
    const timer = setTimeout(
      () => {
        ending = end();
      },
      msUntilStored(startedAtMs + timeoutMs, timeoutMs),
    ).unref();
    return async () => {
      clearTimeout(timer);
      await ending;
    };
  }

  #stopLive(live: Live, graceMs: number): void {
    live.stopGraceMs = graceMs;
    live.command?.stop(graceMs);
  }

  /**
   * Returns the grace period of a stop: `RAY_JOB_STOP_WAIT_TIME_S` of the job, otherwise the service's,
   * milliseconds.
   */
  #graceOf(job: Job): number {
    const seconds = Number(job.spec.runtimeEnv.envVars.RAY_JOB_STOP_WAIT_TIME_S ?? Number.NaN);
    return seconds >= 0 ? Math.min(seconds * 1000, MAX_STOP_GRACE_MS) : this.#options.stopGraceMs;
  }

  /**
   * Ends a job after an internal or storage failure. If that fails too, the next start continues from the
   * stored state.
   */
  async #fault(job: Job, error: unknown): Promise<RunResult> {
    if (this.#closing.signal.aborted) return 'left';
    this.#options.log.error({ job: job.id, tenant: job.tenant, err: error }, 'job run failed');
    const command = this.#live.get(job.sequence)?.command;
    try {
      return await this.#end(
        job,
        failedEnd('JOB_SUPERVISOR_ACTOR_DIED', 'Job was given up because of an internal error.'),
      );
    } catch {
      return 'left';
    } finally {
      if (command) void this.#options.instances.commands.remove(command);
    }
  }

  async #removeFiles(job: Job): Promise<void> {
    await this.#options.files.remove(job.sequence).catch(error => this.#warn(job, error, 'cannot remove files of job'));
  }

  #forget(job: Job): void {
    this.#live.delete(job.sequence);
    this.#running.delete(job.sequence);
    this.#late.delete(job.sequence);
  }

  #warn(job: Job, error: unknown, message: string): void {
    this.#options.log.warn({ job: job.id, tenant: job.tenant, err: error }, message);
  }
}

/** Exit of a sandbox of which no trace remains. */
const GONE: Omit<ExitResult, 'atMs'> = { code: null, signal: null, oomKilled: false };

/**
 * Returns true if the command certainly ended before its timeout. Some drivers report the end in whole
 * seconds, and a timer may fire a millisecond early. Such ends do not count as in time.
 */
function endedInTime({ atMs }: ExitResult, startedAtMs: number | null | undefined, timeoutMs: number): boolean {
  if (typeof startedAtMs !== 'number') return false;
  const roundedMs = atMs % 1000 === 0 ? 1000 : 1;
  return atMs + roundedMs < startedAtMs + timeoutMs;
}

function pidOf({ handle }: Command): string {
  const { pid } = handle.data;
  return typeof pid === 'number' ? String(pid) : '';
}

async function textOf(chunks: AsyncIterable<Buffer>): Promise<string> {
  const parts: Buffer[] = [];
  try {
    for await (const chunk of chunks) parts.push(chunk);
  } catch {
    // The end of a job is more important than its last lines.
  }
  return Buffer.concat(parts).toString('utf8').trimEnd();
}
