import type { JobStatus } from '../core/job.ts';

/** Counters of jobs. `Jobs.byStatus` counts the jobs that wait and run now. */
export interface JobMetrics {
  /** Counts the start of a job's first attempt, `waitedMs` after its submission. */
  started(waitedMs: number): void;
  /** Counts the end of a started attempt, whether or not another attempt follows. */
  attempted(status: JobStatus, ranMs: number): void;
  /** Counts the final end of a job, whether or not it ever ran. */
  ended(status: JobStatus): void;
}
