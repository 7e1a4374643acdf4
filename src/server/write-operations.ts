import * as functions from '../registry/function-writes.ts';
import * as pools from '../registry/pool-writes.ts';
import * as reservations from '../registry/reservation-writes.ts';
import { changeAgentAlarms } from '../storage/queries/agent-alarms.ts';
import { saveAgentState } from '../storage/queries/agent-states.ts';
import { changeAgentSpec, insertSleepingAgent, takeAgentName } from '../storage/queries/agents.ts';
import { deleteApiKey, insertApiKey } from '../storage/queries/api-keys.ts';
import { claimAsyncCall, finishAsyncCall, insertAsyncCall } from '../storage/queries/async-calls.ts';
import { deleteCallRecording, putCallRecording } from '../storage/queries/call-recordings.ts';
import { dropCalls, insertCalls } from '../storage/queries/calls.ts';
import {
  countUnpackedCode,
  dropCodePackage,
  dropLostCodeParts,
  putCodePackage,
  putCodePackagePart,
  useCodePackage,
} from '../storage/queries/code-packages.ts';
import { insertInstanceUnder } from '../storage/queries/instances.ts';
import { failJobsOfNode, markLogStored, ownJobs, takeFreeJob } from '../storage/queries/job-owners.ts';
import {
  dropJobPackage,
  putJobPackage,
  replacePackagesOfNode,
  useJobPackage,
} from '../storage/queries/job-packages.ts';
import { deleteJobSchedule, insertJobSchedule, putJobSchedule } from '../storage/queries/job-schedules.ts';
import { insertJob, insertScheduledJob } from '../storage/queries/job-submits.ts';
import { claimJob, deleteJob, finishJob, requeueJob, setJobStopReason, stopJob } from '../storage/queries/jobs.ts';
import { dropSecret, lackingSecret, putSecret, resealSecret } from '../storage/queries/secrets.ts';
import {
  deleteTemplate,
  dropTemplateTags,
  insertTemplateBuild,
  putTemplateFiles,
  putTemplateTags,
  updateTemplateBuild,
} from '../storage/queries/templates.ts';

/** Every operation for `DurableWrites.write`, by the name that the writer thread uses. */
export const WRITE_OPERATIONS = {
  ...functions,
  ...pools,
  ...reservations,
  takeAgentName,
  changeAgentSpec,
  insertSleepingAgent,
  saveAgentState,
  changeAgentAlarms,
  insertInstanceUnder,
  insertAsyncCall,
  claimAsyncCall,
  finishAsyncCall,
  insertCalls,
  dropCalls,
  putCallRecording,
  deleteCallRecording,
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
  countUnpackedCode,
  putCodePackage,
  useCodePackage,
  dropCodePackage,
  putCodePackagePart,
  dropLostCodeParts,
  insertApiKey,
  deleteApiKey,
  insertTemplateBuild,
  updateTemplateBuild,
  putTemplateTags,
  dropTemplateTags,
  deleteTemplate,
  putTemplateFiles,
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
