import { randomUUID } from 'node:crypto';
import { failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import type { Job } from '../core/job.ts';
import { type ResolvedVariables, resolveVariables, type SecretSource } from '../core/secret.ts';
import type { Command } from '../instances/command.ts';
import type { InstanceLog } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import { sharedController } from '../lib/linked-signal.ts';
import { newSecret } from '../lib/new-secret.ts';
import type { ExitResult, SandboxDriver } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import {
  claimJob,
  finishJob,
  type JobEnd,
  markJobRunning,
  readJob,
  requeueJob,
  type StopReason,
  type StoredJob,
  setJobStopReason,
} from '../storage/jobs.ts';
import { untilWritten } from '../storage/until-written.ts';
import { type JobNode, ownerOf } from './cluster.ts';
import type { JobChanges } from './job-changes.ts';
import type { JobFiles, PlacedFiles } from './job-files.ts';
import type { JobLogs } from './job-logs.ts';
import type { JobMetrics } from './job-metrics.ts';
import { type JobParts, type JobSandboxRules, type PlacedEnvironment, toJobSandbox } from './job-sandbox.ts';
import { endOf, failedEnd, NOT_STARTED, RUNNING_MESSAGE, retryDelayMs, stoppedEnd } from './outcome.ts';
import type { JobPython } from './python.ts';
import type { PythonEnvironments } from './python-environments.ts';

export interface JobRunnerOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  readonly instances: Instances;
  readonly driver: () => Promise<SandboxDriver>;
  readonly files: JobFiles;
  readonly environments: PythonEnvironments;
  /** Finds out what this machine can do, before the first job. */
  readonly prepare: () => Promise<void>;
  /** null: this machine has none. */
  readonly python: () => Promise<JobPython | null>;
  /** Absent: there are no secrets. */
  readonly secrets?: SecretSource;
  readonly logs: JobLogs;
  readonly changes: JobChanges;
  readonly metrics: JobMetrics;
  readonly rules: JobSandboxRules;
  readonly startTimeoutMs: number;
  readonly stopGraceMs: number;
  readonly log: InstanceLog;
}

/** The outcome of a run: it is over, it is to run again at this moment, or the server ends and the next one goes on with it. */
export type RunResult = 'over' | 'left' | { readonly againAtMs: number };

interface Live {
  readonly job: Job;
  command: Command | null;
  stopGraceMs: number | null;
  /** It is to end as one that was stopped, whether or not that is on the disk. */
  isStopped: boolean;
}

/** How soon a job that could not be started for a reason that may pass is tried again, and how long such reasons are waited for. */
const TRY_LATER_MS = 2_000;
const PATIENCE_MS = 300_000;
/** Starts that fail further apart than this, and the time that a start may take, do not fail for one reason. */
const PAUSE_BETWEEN_MS = 60_000;
const LAST_LINES = 10;
const MAX_STOP_GRACE_MS = 3_600_000;

/** Runs one attempt of a job, from its files to its end. Never rejects: what goes wrong is how the job ended. */
export class JobRunner {
  readonly #options: JobRunnerOptions;
  readonly #live = new Map<number, Live>();
  readonly #running = new Set<number>();
  /** Those that ran longer than they may. */
  readonly #late = new Set<number>();
  readonly #closing = sharedController();
  #startsMore = true;
  /** Since when no sandbox could be started, and the last time; undefined while the last one could. */
  #failing: { readonly sinceMs: number; lastMs: number } | undefined;

  constructor(options: JobRunnerOptions) {
    this.#options = options;
  }

  /** Jobs that are RUNNING: not those whose files or sandboxes are being made ready. */
  get running(): number {
    return this.#running.size;
  }

  /** A job that waits. `signal` aborts when it was stopped before it started. */
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

  /** A job that an earlier server had started, or was starting. */
  async adopt(stored: StoredJob): Promise<RunResult> {
    const { job } = stored;
    const { pip } = job.spec.runtimeEnv;
    const live: Live = { job, command: null, stopGraceMs: null, isStopped: false };
    this.#live.set(job.sequence, live);
    if (job.status === 'RUNNING') this.#running.add(job.sequence);
    let result: RunResult = 'left';
    // Beside the rest: what runs already needs neither a zygote nor an interpreter of ours.
    const held = pip === null ? null : this.#options.python();
    void held?.then(python => python && pip && this.#options.environments.hold(job.tenant, pip, python));
    try {
      const found = await this.#options.instances.recover(job.instanceId, this.#closing.signal);
      // One that had begun would be RUNNING, or have its instance still: the server died before it could put the job back.
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
      // Asked for again: a stop that came before it was live here has only left its reason.
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

  /** Ends what runs of it; the reason is on the disk already. */
  stop(job: Job): void {
    const live = this.#live.get(job.sequence);
    if (live) this.#stopLive(live, this.#graceOf(job));
  }

  /** The same, when the reason may not be on the disk. */
  end(job: Job): void {
    const live = this.#live.get(job.sequence);
    if (live) live.isStopped = true;
    this.stop(job);
  }

  /** Those whose command runs. */
  begun(): readonly Job[] {
    return [...this.#live.values()].filter(({ command }) => command !== null).map(({ job }) => job);
  }

  /** It was asked to end on another node, which has left its reason; nothing when it was asked here too. */
  stopOnce(job: Job): void {
    const live = this.#live.get(job.sequence);
    if (live && live.stopGraceMs === null) this.#stopLive(live, this.#graceOf(job));
  }

  /** It is not this node's any more: what runs of it ends at once. */
  abandon(sequence: number): void {
    const live = this.#live.get(sequence);
    if (live) this.#stopLive(live, 0);
  }

  /** Nothing starts from now on: what has not begun waits for the next server. */
  startNoMore(): void {
    this.#startsMore = false;
    this.#options.environments.close();
  }

  /** Lets go of everything; jobs run on. */
  close(): void {
    this.startNoMore();
    this.#closing.abort();
  }

  /** Why this machine cannot run jobs yet; null when it can, or is not worth waiting for (then the start says why). */
  async #notPrepared(job: Job): Promise<unknown> {
    try {
      await this.#options.prepare();
      return null;
    } catch (error) {
      this.#warn(job, error, 'its sandbox cannot be made yet');
      const mayPass = error instanceof ServiceError && error.code === 'unavailable';
      if (mayPass && this.#isPatient()) return error;
      throw error;
    }
  }

  /** A shortage that may pass is waited for; one that has lasted so long will not pass. */
  #isPatient(): boolean {
    const nowMs = performance.now();
    // While nothing was to be started, nothing failed: then this is another shortage.
    const apartMs = this.#options.startTimeoutMs + PAUSE_BETWEEN_MS;
    if (this.#failing === undefined || nowMs - this.#failing.lastMs > apartMs)
      this.#failing = { sinceMs: nowMs, lastMs: nowMs };
    this.#failing.lastMs = nowMs;
    return nowMs - this.#failing.sinceMs < PATIENCE_MS;
  }

  /** Nothing of it has run: it waits for another try, which is not another attempt. */
  async #tryLater(job: Job, why: unknown): Promise<RunResult> {
    const notBeforeMs = Date.now() + TRY_LATER_MS;
    const message = `${NOT_STARTED} Its sandbox could not be started yet, and is tried again: ${messageOf(why)}`;
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
      // On the disk before it starts: after a crash only the sandbox itself can tell whether it has begun.
      const claim = () => writes.write(claimJob, job.sequence, ownerOf(this.#options.node), intent);
      if (!(await this.#written(job, claim))) return 'over';
      if (!this.#startsMore) {
        await this.#requeue(claimed, { attempt: job.attempt, notBeforeMs: 0, message: job.message });
        return 'left';
      }
      let command: Command | null;
      try {
        command = await instances.run(
          intent,
          { driver, sandbox },
          AbortSignal.timeout(startTimeoutMs),
          this.#closing.signal,
        );
      } catch (error) {
        if (this.#closing.signal.aborted) return 'left';
        // The driver's word for it that nothing of the job has run.
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

  /** False when it was given up elsewhere while it started. */
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

  /** It is not this node's any more, whoever decided so: its row stays as it is. */
  #giveUp(command: Command): RunResult {
    void this.#options.instances.remove(command);
    return 'over';
  }

  async #watch(job: Job, command: Command): Promise<RunResult> {
    const disarm = await this.#armTimeout(job);
    let exit: ExitResult | null;
    try {
      exit = await command.exited(this.#closing.signal);
    } finally {
      // What comes after the end is not time of the command.
      await disarm();
    }
    if (exit === null) return 'left';
    return await this.#finish(job, command, exit);
  }

  async #finish(job: Job, command: Command, exit: ExitResult): Promise<RunResult> {
    const all = { tail: null, sinceMs: null, follow: false };
    const never = new AbortController().signal;
    // Kept before the end is reported: whoever sees the end finds the whole log.
    const keep = () => this.#options.logs.archive(job.sequence, job.attempt, command.logs(all, never));
    await this.#written(job, keep).catch(error => this.#warn(job, error, 'its log could not be kept'));
    if (this.#closing.signal.aborted) return 'left';
    const isGood = exit.code === 0 && exit.signal === null;
    const lastLines = isGood ? '' : await textOf(command.logs({ ...all, tail: LAST_LINES }, never));
    const stored = await this.#stored(job);
    const asked = stored?.stopReason || this.#unwrittenReason(job);
    // While no server ran, its time passed after its end too.
    const isInTime = asked === 'timeout' && endedInTime(exit, stored?.job.startedAtMs, job.spec.rules.timeoutMs);
    const stopReason = isInTime ? '' : asked;
    const end = endOf(exit, stopReason, job.spec.rules, lastLines);
    const startedAtMs = stored?.job.startedAtMs ?? end.endedAtMs;
    this.#options.metrics.attempted(end.status, Math.max(0, end.endedAtMs - startedAtMs));
    const result = await this.#end(job, end, stopReason === '');
    void this.#options.instances.remove(command);
    return result;
  }

  /** Why it was asked to end, when that could not be written. */
  #unwrittenReason({ sequence }: Job): StopReason {
    if (this.#live.get(sequence)?.isStopped === true) return 'stopped';
    return this.#late.has(sequence) ? 'timeout' : '';
  }

  /** Its end, or another attempt when it failed and may be tried again. */
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

  /** The server that was starting it died before anything of the job had run. */
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

  /** Repeats a write about a job until it succeeds; the job keeps its slot meanwhile. */
  #written<T>(job: Job, write: () => Promise<T>): Promise<T> {
    return untilWritten(write, this.#closing.signal, error =>
      this.#warn(job, error, 'its new state could not be written yet; it is tried again'),
    );
  }

  /** What is on record of it now. A database that is away is waited for: a job does not fail because it could not be asked about. */
  #stored(job: Job): Promise<StoredJob | null> {
    return untilWritten(
      () => readJob(this.#options.database, job.sequence),
      this.#closing.signal,
      error => this.#warn(job, error, 'it could not be read yet; it is tried again'),
    );
  }

  /** Ends it when its time is over. What is returned takes that back; once it has resolved, nothing more is written of it. */
  async #armTimeout(job: Job): Promise<() => Promise<void>> {
    const { timeoutMs } = job.spec.rules;
    if (timeoutMs === 0) return async () => undefined;
    const stored = await this.#stored(job);
    const startedAtMs = stored?.job.startedAtMs ?? Date.now();
    let ending: Promise<void> | undefined;
    const end = async () => {
      // Also remembered here: a job that fills the disk has to be ended although nothing can be written.
      this.#late.add(job.sequence);
      await this.#options.writes
        .write(setJobStopReason, job.sequence, 'timeout')
        .catch(error => this.#warn(job, error, 'why it is stopped could not be written'));
      this.stop(job);
    };
    const timer = setTimeout(
      () => {
        ending = end();
      },
      Math.max(0, startedAtMs + timeoutMs - Date.now()),
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

  /** `RAY_JOB_STOP_WAIT_TIME_S` of the job, else the service's. */
  #graceOf(job: Job): number {
    const seconds = Number(job.spec.runtimeEnv.envVars.RAY_JOB_STOP_WAIT_TIME_S ?? Number.NaN);
    return seconds >= 0 ? Math.min(seconds * 1000, MAX_STOP_GRACE_MS) : this.#options.stopGraceMs;
  }

  /** Storage or the program itself failed; what is on the disk says where the next start goes on. */
  async #fault(job: Job, error: unknown): Promise<RunResult> {
    if (this.#closing.signal.aborted) return 'left';
    this.#options.log.error({ job: job.id, tenant: job.tenant, err: error }, 'a job could not be run');
    const command = this.#live.get(job.sequence)?.command;
    try {
      return await this.#end(
        job,
        failedEnd('JOB_SUPERVISOR_ACTOR_DIED', 'Job was given up because of an internal error.'),
      );
    } catch {
      return 'left';
    } finally {
      if (command) void this.#options.instances.remove(command);
    }
  }

  async #removeFiles(job: Job): Promise<void> {
    await this.#options.files.remove(job.sequence).catch(error => this.#warn(job, error, 'its files were not removed'));
  }

  #forget(job: Job): void {
    this.#live.delete(job.sequence);
    this.#running.delete(job.sequence);
    this.#late.delete(job.sequence);
  }

  #warn(job: Job, error: unknown, message: string): void {
    this.#options.log.warn({ job: job.id, tenant: job.tenant, err: error }, `a job: ${message}`);
  }
}

/** How a sandbox ended of which there is no trace. */
const GONE: Omit<ExitResult, 'atMs'> = { code: null, signal: null, oomKilled: false };

/** Some drivers know an end to the second only, and a timer may be a millisecond early: such ends are not taken for ones in time. */
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
    // The end of a job is worth more than its last lines.
  }
  return Buffer.concat(parts).toString('utf8').trimEnd();
}
