import * as functions from './registry/function-writes.ts';
import * as pools from './registry/pool-writes.ts';
import * as reservations from './registry/reservation-writes.ts';
import { claimAsyncCall, finishAsyncCall, insertAsyncCall } from './storage/async-calls.ts';
import {
  dropCodePackage,
  dropLostCodeParts,
  putCodePackage,
  putCodePackagePart,
  useCodePackage,
} from './storage/code-packages.ts';
import { insertInstanceUnder } from './storage/instances.ts';
import { failJobsOfNode, markLogStored, ownJobs, takeFreeJob } from './storage/job-owners.ts';
import { dropJobPackage, putJobPackage, replacePackagesOfNode, useJobPackage } from './storage/job-packages.ts';
import { deleteJobSchedule, insertJobSchedule, putJobSchedule } from './storage/job-schedules.ts';
import { insertJob, insertScheduledJob } from './storage/job-submits.ts';
import { claimJob, deleteJob, finishJob, requeueJob, setJobStopReason, stopJob } from './storage/jobs.ts';
import { dropSecret, lackingSecret, putSecret, resealSecret } from './storage/secrets.ts';

/** Everything that is ever handed to `DurableWrites.write`, by the names under which the thread that writes knows it. */
export const WRITE_OPERATIONS = {
  ...functions,
  ...pools,
  ...reservations,
  insertInstanceUnder,
  insertAsyncCall,
  claimAsyncCall,
  finishAsyncCall,
  insertJobSchedule,
  putJobSchedule,
  deleteJobSchedule,
  insertJob,
  insertScheduledJob,
  ownJobs,
  takeFreeJob,
  failJobsOfNode,
  markLogStored,
  putJobPackage,
  useJobPackage,
  dropJobPackage,
  replacePackagesOfNode,
  putCodePackage,
  useCodePackage,
  dropCodePackage,
  putCodePackagePart,
  dropLostCodeParts,
  putSecret,
  dropSecret,
  resealSecret,
  lackingSecret,
  claimJob,
  requeueJob,
  finishJob,
  setJobStopReason,
  stopJob,
  deleteJob,
};
