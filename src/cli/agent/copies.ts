import { createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson } from '../shared/print.ts';
import { resolveAgent } from './records.ts';

interface ExportOptions extends ClientOptions {
  readonly namespace: string;
}

interface ImportOptions extends ClientOptions {
  readonly namespace?: string;
  readonly name?: string;
  readonly json?: boolean;
}

/** Writes an export of a durable agent to a file. */
export async function exportAgent(io: Io, given: string, file: string, options: ExportOptions): Promise<void> {
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const answer = await client.stream('GET', `/api/agent/${encodeURIComponent(id)}/export`);
  // An export has the variables and the state of the agent.
  await pipeline(answer, createWriteStream(file, { mode: 0o600 }));
  io.out.write(`${file}\n`);
}

/** Makes a sleeping agent of an export, and prints its id. */
export async function importAgent(io: Io, file: string, options: ImportOptions): Promise<void> {
  const { namespace, name } = options;
  const body = await readFile(file).catch((error: Error) => {
    throw usageError(`${file} cannot be read: ${error.message}`);
  });
  const client = await Client.open(options, io);
  const query = new URLSearchParams({ ...(namespace && { namespace }), ...(name && { name }) });
  const headers = { 'content-type': 'application/octet-stream' };
  const answer = await client.json('POST', `/api/agent/import?${query}`, { body, headers });
  if (options.json === true) printJson(io, answer);
  else io.out.write(`${answer.instance_id}\n`);
}
