import { Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printTable } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import { resolveAgent } from './records.ts';

interface AlarmOptions extends ClientOptions {
  readonly namespace: string;
  readonly set?: string;
  readonly at?: string;
  readonly after?: string;
  readonly every?: string;
  readonly cron?: string;
  readonly tz?: string;
  readonly payload?: string;
  readonly maxLate?: string;
  readonly cancel?: string;
  readonly json?: boolean;
}

/** A record of `GET /api/agent/{id}/alarms`. */
interface AlarmRecord {
  readonly name: string;
  readonly at: string;
  readonly every?: number;
  readonly cron?: string;
  readonly tz?: string;
  readonly retry_at?: string;
  readonly attempts: number;
  readonly failed: boolean;
  readonly last_error?: string;
}

const COLUMNS = [
  { title: 'NAME', text: ({ name }: AlarmRecord) => name },
  { title: 'NEXT', text: ({ at, retry_at, failed }: AlarmRecord) => (failed ? 'failed' : (retry_at ?? at)) },
  {
    title: 'REPEATS',
    text: ({ every, cron, tz }: AlarmRecord) =>
      every === undefined ? (cron === undefined ? '-' : `${cron} ${tz ?? 'UTC'}`) : `every ${every} s`,
  },
  { title: 'ATTEMPTS', text: ({ attempts }: AlarmRecord) => String(attempts) },
  { title: 'ERROR', text: ({ last_error }: AlarmRecord) => last_error ?? '-', isFlexible: true },
];

/** Lists the alarms of an agent, or sets or cancels one. */
export async function changeAlarms(io: Io, given: string, options: AlarmOptions): Promise<void> {
  const { set, cancel, json } = options;
  const body = bodyOf(options);
  if (set === undefined && Object.keys(body).length > 0) throw usageError('The time of an alarm needs --set NAME.');
  if (set !== undefined && cancel !== undefined) throw usageError('--set and --cancel exclude each other.');
  const client = await Client.open(options, io);
  const path = `/api/agent/${encodeURIComponent(await resolveAgent(client, given, options.namespace))}/alarms`;
  if (set !== undefined) {
    const answer = await client.json('PUT', `${path}/${encodeURIComponent(set)}`, { body: JSON.stringify(body) });
    if (json === true) printJson(io, answer);
    else io.out.write(`${(answer.alarm as AlarmRecord).at}\n`);
  } else if (cancel !== undefined) {
    const answer = await client.json('DELETE', `${path}/${encodeURIComponent(cancel)}`);
    if (json === true) printJson(io, answer);
    else io.out.write(`${cancel}\n`);
  } else {
    const alarms = JSON.parse(await client.text('GET', path)) as readonly AlarmRecord[];
    if (json === true) printJson(io, alarms);
    else printTable(io, COLUMNS, alarms);
  }
}

function bodyOf({ at, after, every, cron, tz, payload, maxLate }: AlarmOptions): Record<string, unknown> {
  return {
    ...(at !== undefined && { at }),
    ...(after !== undefined && { after: secondsOf(after, '--after') }),
    ...(every !== undefined && { every: secondsOf(every, '--every') }),
    ...(cron !== undefined && { cron }),
    ...(tz !== undefined && { tz }),
    ...(payload !== undefined && { payload: payloadOf(payload) }),
    ...(maxLate !== undefined && { max_late_seconds: secondsOf(maxLate, '--max-late') }),
  };
}

function secondsOf(time: string, flag: string): number {
  return parseDurationMs(time, flag) / 1000;
}

function payloadOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw usageError(`--payload must be JSON, got ${text}; a text needs quotes of its own: '"tea"'.`);
  }
}
