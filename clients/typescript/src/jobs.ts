import type { Code } from './code.ts';
import type { Connection, RequestOptions } from './connection.ts';
import type { Job, JobRequest } from './generated.ts';
import { readLines } from './lines.ts';
import { untilThere } from './looks.ts';
import type { Environment } from './runs.ts';

export interface SubmitOptions extends RequestOptions {
  readonly id?: string;
  /** A directory that is packed and uploaded; the job runs in a copy of it. */
  readonly code?: string;
  readonly env?: Environment;
  /** Packages of Python that it needs. */
  readonly pip?: readonly string[];
  readonly metadata?: Readonly<Record<string, string>>;
  readonly cpus?: number;
  readonly memoryMb?: number;
  /** How often it runs again after it failed. */
  readonly retries?: number;
}

const MEBIBYTE = 1024 * 1024;
const PAUSES = { firstMs: 500, longestMs: 500 };
const OVER = new Set(['SUCCEEDED', 'FAILED', 'STOPPED']);

export class Jobs {
  readonly #connection: Connection;
  readonly #code: Code;

  constructor(connection: Connection, code: Code) {
    this.#connection = connection;
    this.#code = code;
  }

  /** Submits one line for `/bin/sh -c`; answers the job's id. */
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

  async get(id: string, options: RequestOptions = {}): Promise<Job> {
    return await this.#connection.call('getJob', { ...options, params: { id } });
  }

  async list(options: RequestOptions = {}): Promise<Job[]> {
    return await this.#connection.call('listJobs', options);
  }

  async logs(id: string, options: RequestOptions = {}): Promise<string> {
    const { logs } = await this.#connection.call('getJobLogs', { ...options, params: { id } });
    return logs;
  }

  /** The lines of its log as they come, until it is over. */
  async *follow(id: string, options: RequestOptions = {}): AsyncGenerator<string> {
    const request = { ...options, params: { id }, query: { follow: true } };
    yield* readLines(await this.#connection.stream('getJobLogs', request));
  }

  /** Its record once it is over, however it ended. Without `timeoutMs` it is waited for however long it takes. */
  async wait(id: string, options: RequestOptions = {}): Promise<Job> {
    return await untilThere(options, PAUSES, async request => {
      const job = await this.get(id, request);
      return OVER.has(job.status) ? { value: job } : null;
    });
  }

  async stop(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('stopJob', { ...options, params: { id }, mayRepeat: true });
  }

  /** Forgets one that is over. */
  async delete(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('deleteJob', { ...options, params: { id } });
  }
}
