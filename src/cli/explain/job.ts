import { JOB_RULES, reasonOf } from '../../explain/job.ts';
import { applyRules } from '../../explain/rules.ts';
import { withoutMs } from '../../explain/words.ts';
import type { ShownEvent } from '../events.ts';
import { type JobRecord, jobPath, momentOf } from '../job/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';
import type { Explanation } from './explanation.ts';
import { lastLines } from './log-end.ts';
import { readRecentEvents } from './recent-events.ts';

/** Explains a job. */
export async function explainJob(io: Io, id: string, options: ClientOptions): Promise<Explanation> {
  const client = await Client.open(options, io);
  const job = (await client.json('GET', jobPath(id))) as unknown as JobRecord;
  const events = await readRecentEvents(io, client, ['job'], { job: id });
  const verdict = applyRules(JOB_RULES, job);
  return {
    ...{ kind: 'job', name: id, state: job.status, since: sinceOf(job) },
    ...verdict,
    ...{ log: logOf(job), log_of: 'its log' },
    events: events.map(withoutLog),
    record: job,
  };
}

/** The message of an ended job has the last lines of its log. */
function logOf({ message }: JobRecord): readonly string[] {
  const [, log] = /, last available logs \(.*?\):\n(.*)$/s.exec(message) ?? [];
  return log === undefined ? [] : lastLines(log);
}

function withoutLog({ message, ...event }: ShownEvent): ShownEvent {
  return message === undefined ? event : { ...event, message: reasonOf({ message }) };
}

function sinceOf({ status, start_time: submitted, run_time: started, end_time: ended }: JobRecord): string {
  return withoutMs(momentOf(ended ?? (status === 'RUNNING' ? (started ?? submitted) : submitted)));
}
