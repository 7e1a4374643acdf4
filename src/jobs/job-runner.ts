import { randomUUID } from 'node:crypto';
import { messageOf } from '../core/error.ts';
import type { Job } from '../core/job.ts';
import type { Command } from '../instances/command.ts';
import type { Instances } from '../instances/instances.ts';
import { sharedController } from '../lib/linked-signal.ts';
import { newSecret } from '../lib/random-ids.ts';
import { msUntilStored } from '../lib/stored-time.ts';
import type { ExitResult, SandboxDriver, SandboxSpec } from '../sandbox/driver.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import { type StoredJob, setJobStopReason } from '../storage/queries/jobs.ts';
import type { StopReason } from '../storage/schema.ts';
import { type JobParts, toJobSandbox } from './job-sandbox.ts';
import { JobSetup, type JobSetupOptions, type Setup, StartPatience } from './job-setup.ts';
import { JobStates, type JobStatesOptions, type RunResult } from './job-states.ts';
import { endOf, failedEnd } from './outcome.ts';

export interface JobRunnerOptions extends JobStatesOptions, JobSetupOptions {
  readonly instances: Instances;
  readonly driver: () => Promise<SandboxDriver>;
  readonly startTimeoutMs: number;
  readonly stopGraceMs: number;
}

interface Live {
  readonly job: Job;
  command: Command | null;
  stopGraceMs: number | null;
  /** True if the job must end as stopped, even if that could not be stored. */
  isStopped: boolean;
}

/** Sandbox of a job before its start. */
interface Draft {
  readonly driver: SandboxDriver;
  readonly sandbox: SandboxSpec;
  readonly intent: StoredInstance;
}

/** Outcome of a start: the command that runs, or the result of a run that goes no further. */
type Started = { readonly command: Command } | { readonly result: RunResult };

const LAST_LINES = 10;
const MAX_STOP_GRACE_MS = 3_600_000;

/**
 * Runs one attempt of a job, from its files to its end. Never rejects: a failure becomes the end of the job.
 */
export class JobRunner {
  readonly #options: JobRunnerOptions;
  readonly #patience: StartPatience;
  readonly #setup: JobSetup;
  readonly #states: JobStates;
  readonly #live = new Map<number, Live>();
  readonly #running = new Set<number>();
  /** Jobs that exceeded their timeout. */
  readonly #late = new Set<number>();
  readonly #closing = sharedController();
  #startsMore = true;

  constructor(options: JobRunnerOptions) {
    this.#options = options;
    this.#patience = new StartPatience(options.startTimeoutMs);
    this.#setup = new JobSetup(options, this.#patience);
    this.#states = new JobStates(options, this.#closing.signal);
  }

  /** Number of jobs that are RUNNING. Jobs whose files or sandboxes are being prepared do not count. */
  get running(): number {
    return this.#running.size;
  }

  /** Runs a waiting job. `signal` aborts when the job was stopped before it started. */
  async run({ job }: StoredJob, signal: AbortSignal): Promise<RunResult> {
    const setup = await this.#setup.prepare(job);
    const result = await this.#afterSetup(job, setup, signal).catch(error => this.#fault(job, error));
    this.#setup.release(job, setup);
    if (result !== 'left') await this.#removeFiles(job);
    return result;
  }

  /** Continues a job that an earlier server had started or was starting. */
  async adopt(stored: StoredJob): Promise<RunResult> {
    const { job } = stored;
    const live = this.#track(job);
    if (job.status === 'RUNNING') this.#running.add(job.sequence);
    const release = this.#setup.protect(job);
    const result = await this.#recover(stored, live).catch(error => this.#fault(job, error));
    this.#forget(job);
    release();
    if (result !== 'left') await this.#removeFiles(job);
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

  async #afterSetup(job: Job, setup: Setup, signal: AbortSignal): Promise<RunResult> {
    if (signal.aborted) return 'over';
    if (!this.#startsMore) return 'left';
    if (setup.kind === 'ready') return await this.#start(job, setup.parts);
    if (setup.kind === 'notYet') return await this.#states.tryLater(job, setup.why);
    const message = `runtime_env setup failed: ${messageOf(setup.why)}`;
    return await this.#states.end(job, failedEnd('RUNTIME_ENV_SETUP_FAILURE', message));
  }

  async #start(job: Job, parts: JobParts): Promise<RunResult> {
    const { instances, driver: getDriver, rules } = this.#options;
    const driver = await getDriver();
    const claimed: Job = { ...job, instanceId: randomUUID() };
    const sandbox = toJobSandbox(job, claimed.instanceId, newSecret(), parts, rules);
    const owner = { kind: 'job', key: String(job.sequence) } as const;
    const intent = instances.draft({ owner, tenant: job.tenant, sandboxType: driver.name, sandbox });
    const live = this.#track(job);
    const release = instances.lock(intent.id);
    try {
      // Stored before the start: after a crash only the sandbox itself can tell whether it has begun.
      if (!(await this.#states.claim(job, intent))) return 'over';
      if (!this.#startsMore) {
        await this.#states.requeueUnchanged(claimed);
        return 'left';
      }
      const started = await this.#startCommand(claimed, { driver, sandbox, intent });
      if ('result' in started) return started.result;
      const { command } = started;
      live.command = command;
      if (!(await this.#markRunning(claimed, command))) return this.#removeCommand(command);
      if (live.stopGraceMs !== null) this.#stopLive(live, live.stopGraceMs);
      return await this.#watch(claimed, command);
    } finally {
      release();
      this.#forget(claimed);
    }
  }

  async #startCommand(job: Job, { driver, sandbox, intent }: Draft): Promise<Started> {
    const { instances, startTimeoutMs } = this.#options;
    const closing = this.#closing.signal;
    let command: Command | null;
    try {
      command = await instances.commands.run(intent, { driver, sandbox }, AbortSignal.timeout(startTimeoutMs), closing);
    } catch (error) {
      if (closing.aborted) return { result: 'left' };
      if (this.#patience.shouldRetry(error)) return { result: await this.#states.tryLater(job, error) };
      const message = `Job could not be started: ${messageOf(error)}`;
      return { result: await this.#states.end(job, failedEnd('JOB_SUPERVISOR_ACTOR_START_FAILURE', message)) };
    }
    if (command === null) return { result: 'left' };
    this.#patience.reset();
    return { command };
  }

  /** Continues a job from the record and the sandbox that an earlier server left. */
  async #recover({ job, stopReason }: StoredJob, live: Live): Promise<RunResult> {
    const found = await this.#options.instances.commands.recover(job.instanceId, this.#closing.signal);
    // A job that had begun would be RUNNING or still have its instance. The server died before it could
    // requeue the job.
    if (found === 'never' || (found === 'gone' && job.status === 'PENDING'))
      return await this.#states.requeueUnchanged(job);
    if (found === 'gone')
      return await this.#states.end(job, endOf({ ...GONE, atMs: Date.now() }, stopReason, job.spec.rules, ''));
    live.command = found;
    if (job.status === 'PENDING' && !(await this.#markRunning(job, found))) return this.#removeCommand(found);
    // Read again: a stop that arrived before the job was live here has only stored its reason.
    const now = await this.#states.read(job);
    if (now !== null && now.stopReason !== '') this.#stopLive(live, this.#graceOf(job));
    else if (live.stopGraceMs !== null) this.#stopLive(live, live.stopGraceMs);
    return await this.#watch(job, found);
  }

  /** Marks a job as RUNNING. Returns false when another process took or ended it during the start. */
  async #markRunning(job: Job, command: Command): Promise<boolean> {
    const startedAtMs = Date.now();
    if (!(await this.#states.storeStart(job, pidOf(command), startedAtMs))) return false;
    this.#running.add(job.sequence);
    this.#states.reportStart(job, startedAtMs);
    return true;
  }

  /** Removes the command of a job that this node does not own any more. The record stays unchanged. */
  #removeCommand(command: Command): RunResult {
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
    await this.#states.write(job, keep).catch(error => this.#states.warn(job, error, 'cannot keep log of job'));
    if (this.#closing.signal.aborted) return 'left';
    const isGood = exit.code === 0 && exit.signal === null;
    const lastLines = isGood ? '' : await textOf(command.logs({ ...all, tail: LAST_LINES }, never));
    const stored = await this.#states.read(job);
    const asked = stored?.stopReason || this.#unwrittenReason(job);
    // If no server ran meanwhile, the timeout may have passed only after the command had ended in time.
    const isInTime = asked === 'timeout' && endedInTime(exit, stored?.job.startedAtMs, job.spec.rules.timeoutMs);
    const stopReason = isInTime ? '' : asked;
    const end = endOf(exit, stopReason, job.spec.rules, lastLines);
    const startedAtMs = stored?.job.startedAtMs ?? end.endedAtMs;
    this.#options.metrics.attempted(end.status, Math.max(0, end.endedAtMs - startedAtMs));
    const result = await this.#states.end(job, end, stopReason === '');
    void this.#options.instances.commands.remove(command);
    return result;
  }

  /** Returns the stop reason of a job when it could not be stored. */
  #unwrittenReason({ sequence }: Job): StopReason {
    if (this.#live.get(sequence)?.isStopped === true) return 'stopped';
    return this.#late.has(sequence) ? 'timeout' : '';
  }

  /**
   * Ends the job when its timeout has passed. The returned function cancels the timer, and resolves after the
   * last write of a timeout that has begun.
   */
  async #armTimeout(job: Job): Promise<() => Promise<void>> {
    const { timeoutMs } = job.spec.rules;
    if (timeoutMs === 0) return async () => undefined;
    const stored = await this.#states.read(job);
    const startedAtMs = stored?.job.startedAtMs ?? Date.now();
    let ending: Promise<void> | undefined;
    const end = async () => {
      // Also kept in memory: a job that fills the disk must end although nothing can be stored.
      this.#late.add(job.sequence);
      await this.#options.writes
        .write(setJobStopReason, job.sequence, 'timeout')
        .catch(error => this.#states.warn(job, error, 'cannot write why job is stopped'));
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

  #track(job: Job): Live {
    const live: Live = { job, command: null, stopGraceMs: null, isStopped: false };
    this.#live.set(job.sequence, live);
    return live;
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
      return await this.#states.end(
        job,
        failedEnd('JOB_SUPERVISOR_ACTOR_DIED', 'Job failed because of an internal error.'),
      );
    } catch {
      return 'left';
    } finally {
      if (command) void this.#options.instances.commands.remove(command);
    }
  }

  async #removeFiles(job: Job): Promise<void> {
    await this.#options.files
      .remove(job.sequence)
      .catch(error => this.#states.warn(job, error, 'cannot remove files of job'));
  }

  #forget(job: Job): void {
    this.#live.delete(job.sequence);
    this.#running.delete(job.sequence);
    this.#late.delete(job.sequence);
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
