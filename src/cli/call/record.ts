import { resolveAgent } from '../agent/records.ts';
import { parseFunction } from '../function/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';
import { printJson } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import type { Recording } from './records.ts';

export interface RecordOptions extends ClientOptions {
  readonly namespace?: string;
  readonly for: string;
  readonly stop?: boolean;
  readonly json?: boolean;
}

/** Starts, prolongs or stops the recording of all calls of an agent or function. */
export async function recordCalls(
  io: Io,
  kind: 'agent' | 'function',
  given: string,
  options: RecordOptions,
): Promise<void> {
  const seconds = Math.ceil(parseDurationMs(options.for, '--for') / 1000);
  const client = await Client.open(options, io);
  const target =
    kind === 'agent' ? await resolveAgent(client, given, options.namespace ?? 'default') : parseFunction(given);
  if (options.stop === true) {
    const answer = await client.json('DELETE', `/api/recordings?${new URLSearchParams({ [kind]: target })}`);
    if (options.json === true) printJson(io, answer);
    else io.out.write(`The recording of ${given} has ended.\n`);
    return;
  }
  const body = JSON.stringify({ [kind]: target, seconds });
  const recording = (await client.json('PUT', '/api/recordings', { body })).recording as unknown as Recording;
  if (options.json === true) printJson(io, recording);
  else io.out.write(`All calls of ${given} are recorded until ${recording.end_time}.\n`);
}
