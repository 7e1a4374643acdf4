import type { Code } from './code.ts';
import type { Connection, RequestOptions } from './connection.ts';
import { followLog } from './followed-log.ts';
import type { Job, JobRequest } from './generated.ts';
import { untilThere } from './looks.ts';
import type { Environment } from './runs.ts';

export interface SubmitOptions extends RequestOptions {
  /** Id of the job. Absent: the service makes one. */
  readonly id?: string;
  /** Directory to pack and upload. The job runs in a copy of it. */
  readonly code?: string;
  readonly env?: Environment;
  /** Python packages to install before the command starts. */
  readonly pip?: readonly string[];
  readonly metadata?: Readonly<Record<string, string>>;
  /** Number of CPU cores; fractions are allowed. */
  readonly cpus?: number;
  /** Memory in MiB. */
  readonly memoryMb?: number;
  /** Maximum number of runs after a failed one. */
  readonly retries?: number;
}

const MEBIBYTE = 1024 * 1024;
const PAUSES = { firstMs: 500, longestMs: 500 };
const OVER = new Set(['SUCCEEDED', 'FAILED', 'STOPPED']);

/** Submits and observes jobs. */
export class Jobs {
  readonly #connection: Connection;
  readonly #code: Code;

  constructor(connection: Connection, code: Code) {
    this.#connection = connection;
    this.#code = code;
  }

  /** Submits one line, which `/bin/sh -c` runs, and returns the id of the job. */
  async submit(command: string, options: SubmitOptions = {}): Promise<string> {
    const { signal, timeoutMs, traceId, code, env, pip, retries } = options;
    const request = { signal, timeoutMs, traceId };
    const working_dir = code === undefined ? undefined : await this.#code.uploadWorkingDirectory(code, request);
    const body: JobRequest = {
      entrypoint: command,
      metadata: { ...options.metadata, ...(retries === undefined ? {} : { 'rookery.retries': String(retries) }) },
      runtime_env: {
        ...(working_dir === undefined ? {} : { working_dir }),
        ...(env === undefined ? {} : { env_vars: env }),
        ...(pip === undefined ? {} : { pip: [...pip] }),
      },
      ...(options.id === undefined ? {} : { submission_id: options.id }),
      ...(options.cpus === undefined ? {} : { entrypoint_num_cpus: options.cpus }),
      ...(options.memoryMb === undefined ? {} : { entrypoint_memory: options.memoryMb * MEBIBYTE }),
    };
    const { submission_id } = await this.#connection.call('submitJob', { ...request, body });
    return submission_id;
  }

  /** Submits the request of a job again, as a new job, and returns its id. The job may have any state. */
  async rerun(id: string, options: RequestOptions = {}): Promise<string> {
    const { submission_id } = await this.#connection.call('rerunJob', { ...options, params: { id } });
    return submission_id;
  }

  async get(id: string, options: RequestOptions = {}): Promise<Job> {
    return await this.#connection.call('getJob', { ...options, params: { id } });
  }

  async list(options: RequestOptions = {}): Promise<Job[]> {
    return await this.#connection.call('listJobs', options);
  }

  /** Returns the current log of a job. */
  async logs(id: string, options: RequestOptions = {}): Promise<string> {
    const { logs } = await this.#connection.call('getJobLogs', { ...options, params: { id } });
    return logs;
  }

  /** Yields lines of the log as the service receives them, until the job ends or `signal` aborts. */
  async *follow(id: string, options: RequestOptions = {}): AsyncGenerator<string> {
    const request = { ...options, params: { id }, query: { follow: true } };
    yield* followLog(this.#connection, { name: 'getJobLogs', options: request, isWhole: true });
  }

  /**
   * Waits until the job has succeeded, failed or been stopped, and returns its record. Fails with
   * `RookeryError` after `timeoutMs` milliseconds. Without `timeoutMs` the wait has no limit.
   */
  async wait(id: string, options: RequestOptions = {}): Promise<Job> {
    return await untilThere(options, PAUSES, async request => {
      const job = await this.get(id, request);
      return OVER.has(job.status) ? { value: job } : null;
    });
  }

  /** Stops a job: sends SIGTERM to its processes, and SIGKILL later if needed. Does not wait for the end. */
  async stop(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('stopJob', { ...options, params: { id }, mayRepeat: true });
  }

  /** Deletes the record and the log of a job that has ended. Fails while the job is queued or runs. */
  async delete(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('deleteJob', { ...options, params: { id } });
  }
}
