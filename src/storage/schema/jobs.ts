import type { Generated } from 'kysely';
import type { JobErrorType, JobStatus } from '../../core/job.ts';

/** The reason why a running job was asked to stop; `''` for none. */
export type StopReason = '' | 'stopped' | 'timeout';

/**
 * Record of `jobs`. PENDING without `instance_id`: the job waits and has no sandbox. PENDING with
 * `instance_id`: the job is starting, and only its sandbox shows whether it has begun.
 */
export interface JobTable {
  sequence: number;
  tenant: string;
  id: string;
  fingerprint: string;
  /**
   * The node that runs the job or will run it; `''`: unassigned, since its node was lost (`job-owners.ts`).
   */
  node_id: string;
  /** The process of that node. An older process must not act on the job. */
  node_epoch: Generated<number>;
  /** `JobSpec` */
  spec: string;
  status: JobStatus;
  message: string;
  error_type: JobErrorType;
  exit_code: number | null;
  attempt: number;
  /** The earliest start; 0: at once. */
  not_before_ms: number;
  instance_id: string;
  pid: string;
  stop_reason: StopReason;
  submitted_at_ms: number;
  started_at_ms: number | null;
  /** null until the job has ended. */
  ended_at_ms: number | null;
  /** 1: the object store has the whole log of the ended job. */
  is_log_stored: Generated<number>;
}
