import * as functions from './registry/function-writes.ts';
import * as pools from './registry/pool-writes.ts';
import * as reservations from './registry/reservation-writes.ts';
import { claimAsyncCall, finishAsyncCall, insertAsyncCall } from './storage/async-calls.ts';
import { deleteJobSchedule, insertJobSchedule } from './storage/job-schedules.ts';
import { claimJob, deleteJob, finishJob, insertJob, requeueJob, setJobStopReason, stopJob } from './storage/jobs.ts';

/** Everything that is ever handed to `DurableWrites.write`, by the names under which the thread that writes knows it. */
export const WRITE_OPERATIONS = {
  ...functions,
  ...pools,
  ...reservations,
  insertAsyncCall,
  claimAsyncCall,
  finishAsyncCall,
  insertJobSchedule,
  deleteJobSchedule,
  insertJob,
  claimJob,
  requeueJob,
  finishJob,
  setJobStopReason,
  stopJob,
  deleteJob,
};
