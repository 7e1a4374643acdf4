/** Record of `job_schedules`. */
export interface JobScheduleTable {
  tenant: string;
  id: string;
  cron: string;
  /** An IANA name. */
  timezone: string;
  /** Behaviour when a run is due while the previous job is still open. */
  overlap: 'skip' | 'allow';
  /** JSON: the body of the submits. */
  submission: string;
  /**
   * Time of the last write. A replacement has a later time, so that no node submits a job of the replaced
   * schedule.
   */
  created_at_ms: number;
  /** All moments up to this time are decided, and no node decides them again. */
  decided_until_ms: number;
}
