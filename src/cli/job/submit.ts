import { Client } from '../shared/client.ts';
import { EXIT } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson } from '../shared/print.ts';
import { type JobOptions, jobBody } from './body.ts';
import { type JobRecord, jobPath, printFollowedLog } from './records.ts';

interface SubmitOptions extends JobOptions {
  readonly id?: string;
  readonly follow?: boolean;
  readonly json?: boolean;
}

/** Submits a job. Returns the exit code: 1 if `--follow` is set and the job failed. */
export async function submitJob(io: Io, command: readonly string[], options: SubmitOptions): Promise<number> {
  const client = await Client.open(options, io);
  const body = {
    ...(await jobBody(io, client, command, options)),
    ...(options.id === undefined ? {} : { submission_id: options.id }),
  };
  const answer = await client.json('POST', '/api/jobs/', { body: JSON.stringify(body) });
  const id = String(answer.submission_id);
  if (options.json === true) printJson(io, answer);
  else if (options.follow === true) io.err.write(`${id}\n`);
  else io.out.write(`${id}\n`);
  if (options.follow !== true) return EXIT.ok;
  await printFollowedLog(io, client, id);
  if (io.signal.aborted) return EXIT.ok;
  const job = (await client.json('GET', jobPath(id))) as unknown as JobRecord;
  if (job.status === 'SUCCEEDED') return EXIT.ok;
  io.err.write(`Job ${id} is ${job.status}: ${job.message.split(', last available logs')[0]}\n`);
  return EXIT.failure;
}
