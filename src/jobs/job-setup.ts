import { failedPrecondition, ServiceError } from '../core/error.ts';
import type { Job } from '../core/job.ts';
import { resolveVariables, type SecretSource } from '../core/secret.ts';
import type { Log } from '../lib/log.ts';
import type { JobFiles } from './job-files.ts';
import type { JobLogs } from './job-logs.ts';
import type { JobParts, JobPython, JobSandboxRules } from './job-sandbox.ts';
import type { PythonEnvironments } from './python-environments.ts';

export interface JobSetupOptions {
  readonly files: JobFiles;
  readonly environments: PythonEnvironments;
  /** Checks the abilities of this machine before the first job. */
  readonly prepare: () => Promise<void>;
  /** Returns the interpreter of jobs; null: this machine has none. */
  readonly python: () => Promise<JobPython | null>;
  /** Absent: no secrets exist. */
  readonly secrets?: SecretSource;
  readonly logs: JobLogs;
  readonly rules: JobSandboxRules;
  readonly log: Log;
}

/** Outcome of a setup. `notYet`: this machine cannot run jobs yet, and a later try is worthwhile. */
export type Setup =
  | { readonly kind: 'ready'; readonly parts: JobParts }
  | { readonly kind: 'notYet'; readonly why: unknown }
  | { readonly kind: 'failed'; readonly why: unknown };

type PipRequirements = NonNullable<Job['spec']['runtimeEnv']['pip']>;

/** Provides the parts that a job needs before its sandbox can start. */
export class JobSetup {
  readonly #options: JobSetupOptions;
  readonly #patience: StartPatience;

  constructor(options: JobSetupOptions, patience: StartPatience) {
    this.#options = options;
    this.#patience = patience;
  }

  /** Prepares the parts of a job. Never rejects. `release` must follow after the last use of the parts. */
  async prepare(job: Job): Promise<Setup> {
    try {
      await this.#options.prepare();
    } catch (error) {
      this.#options.log.warn({ job: job.id, tenant: job.tenant, err: error }, 'cannot create sandbox of job');
      return { kind: this.#patience.shouldRetry(error) ? 'notYet' : 'failed', why: error };
    }
    try {
      return { kind: 'ready', parts: await this.#place(job) };
    } catch (error) {
      return { kind: 'failed', why: error };
    }
  }

  /** Releases the Python environment of a setup. */
  release(job: Job, setup: Setup): void {
    const { pip } = job.spec.runtimeEnv;
    if (setup.kind !== 'ready' || pip === null) return;
    const { python, environment } = setup.parts;
    if (environment !== null && python !== null) this.#options.environments.release(job.tenant, pip, python);
  }

  /** Holds the Python environment of an adopted job. The returned function releases the environment. */
  protect(job: Job): () => void {
    const { environments } = this.#options;
    const { pip } = job.spec.runtimeEnv;
    // Runs concurrently, because a running job needs neither a zygote nor an interpreter of this service.
    const held = pip === null ? null : this.#options.python();
    void held?.then(python => python && pip && environments.protect(job.tenant, pip, python));
    return () => void held?.then(python => python && pip && environments.release(job.tenant, pip, python));
  }

  async #place(job: Job): Promise<JobParts> {
    const { pip, envVars } = job.spec.runtimeEnv;
    const variables = await resolveVariables(job.tenant, envVars, this.#options.secrets);
    const files = await this.#options.files.place(job);
    const python = await this.#options.python();
    const environment = pip === null ? null : await this.#environment(job, pip, python);
    return { files, python, environment, variables };
  }

  async #environment(job: Job, pip: PipRequirements, python: JobPython | null) {
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
}

/** Time for which failed starts are retried when the reason may pass. */
const PATIENCE_MS = 300_000;
/**
 * Gap between failed starts, in addition to the duration of a start, above which they have separate causes.
 */
const PAUSE_BETWEEN_MS = 60_000;

/** Bounds the time for which failed starts of jobs are retried. */
export class StartPatience {
  readonly #startTimeoutMs: number;
  /** Times of the first and the last of consecutive failed starts; undefined after a successful start. */
  #failing: { readonly sinceMs: number; lastMs: number } | undefined;

  constructor(startTimeoutMs: number) {
    this.#startTimeoutMs = startTimeoutMs;
  }

  /** Returns true while a failed start is worth retrying: its reason may pass, for at most `PATIENCE_MS`. */
  shouldRetry(error: unknown): boolean {
    // `unavailable` from the driver guarantees that nothing of the job has run.
    if (!(error instanceof ServiceError) || error.code !== 'unavailable') return false;
    const nowMs = performance.now();
    // A long gap without failures means that this is a new shortage.
    const apartMs = this.#startTimeoutMs + PAUSE_BETWEEN_MS;
    if (this.#failing === undefined || nowMs - this.#failing.lastMs > apartMs)
      this.#failing = { sinceMs: nowMs, lastMs: nowMs };
    this.#failing.lastMs = nowMs;
    return nowMs - this.#failing.sinceMs < PATIENCE_MS;
  }

  /** Records a successful start. */
  reset(): void {
    this.#failing = undefined;
  }
}
