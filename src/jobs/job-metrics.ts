import type { JobStatus } from '../core/job.ts';

/** Counts of jobs. `Jobs.byStatus` counts those that wait and run now. */
export interface JobMetrics {
  /** Its first attempt began, so long after it was submitted. */
  started(waitedMs: number): void;
  /** One attempt that had begun is over, whether or not another one follows. */
  attempted(status: JobStatus, ranMs: number): void;
  /** It is over for good, whether or not it ever ran. */
  ended(status: JobStatus): void;
}
