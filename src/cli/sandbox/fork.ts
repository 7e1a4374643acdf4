import { resolveAgent } from '../agent/records.ts';
import { parsePairs } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { EXIT, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';

interface ForkOptions extends ClientOptions {
  readonly count?: string;
  readonly name?: string;
  readonly namespace: string;
  readonly env?: readonly string[];
  readonly ttl?: string;
  readonly filesOnly?: boolean;
  readonly json?: boolean;
}

interface Fork {
  readonly instance_id?: string;
  readonly error?: { readonly message: string };
}

/** Forks a sandbox and prints the ids of the forks. Returns the exit code: 1 if one did not start. */
export async function forkSandbox(io: Io, given: string, options: ForkOptions): Promise<number> {
  const { count, name, env, ttl, filesOnly, json } = options;
  const body = JSON.stringify({
    ...(count !== undefined && { count: parseCount(count) }),
    ...(name !== undefined && { name }),
    ...(env !== undefined && { env_vars: parsePairs(env, '--env') }),
    ...(ttl !== undefined && { ttl_seconds: parseDurationMs(ttl, '--ttl') / 1000 }),
    ...(filesOnly === true && { files_only: true }),
  });
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const path = `/api/agent/${encodeURIComponent(id)}/fork`;
  const forks = JSON.parse(await client.text('POST', path, { body, timeoutMs: null })) as readonly Fork[];
  if (json === true) printJson(io, forks);
  let exitCode: number = EXIT.ok;
  for (const { instance_id, error } of forks) {
    if (error !== undefined) {
      io.err.write(`a fork did not start: ${error.message}\n`);
      exitCode = EXIT.failure;
    } else if (json !== true) io.out.write(`${instance_id}\n`);
  }
  return exitCode;
}

function parseCount(text: string): number {
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  throw usageError(`--count must be a whole number from 1, not ${JSON.stringify(text)}.`);
}
