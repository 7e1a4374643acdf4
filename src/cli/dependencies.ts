import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DEPENDENCY_FILES, installerOf } from '../core/dependencies.ts';
import { isJsonObject } from '../core/json.ts';
import type { Client } from './client.ts';
import { CliError, EXIT } from './exit.ts';
import { type Io, pump } from './io.ts';

export interface DependencyOptions {
  /** False: `--no-dependencies`. */
  readonly dependencies?: boolean;
}

/** Whether files beside the code ask for something that is installed for this runtime. The service reads them; here they are only looked for. */
export function asksForDependencies(code: string, runtime: string, { dependencies }: DependencyOptions = {}): boolean {
  const tool = installerOf(runtime);
  if (dependencies === false || tool === null) return false;
  const [first, ...others] = DEPENDENCY_FILES[tool];
  const names = tool === 'pip' ? [first, ...others] : [first];
  return names.some(name => existsSync(join(resolve(code), name)));
}

/** Has the service install what the code asks for, and shows what that prints. Fails with the last lines of a build that failed. */
export async function installDependencies(
  io: Io,
  client: Client,
  source: string,
  runtime: string,
  sandbox = '',
): Promise<void> {
  const body = JSON.stringify({ source, runtime, ...(sandbox === '' ? {} : { sandbox_type: sandbox }) });
  const { build } = await client.json('POST', '/api/builds', { body });
  if (!isJsonObject(build) || build.status === 'READY') return;
  const path = `/api/builds/${String(build.id)}`;
  io.err.write(`installing dependencies with ${String(build.tool)} (build ${String(build.id)})\n`);
  try {
    const log = await client.stream('GET', `${path}/logs?follow=true`, { timeoutMs: null });
    await pump(log, io.err, io.signal);
  } catch (error) {
    if (io.signal.aborted) throw new CliError('Interrupted.', EXIT.failure);
    // Another replica may have answered: the request that needs it waits for it, and says what became of it.
    if (error instanceof CliError && error.status === 404) return;
    throw error;
  }
  const ended = await client.json('GET', path);
  if (isJsonObject(ended.build) && ended.build.status === 'FAILED') throw new CliError(String(ended.build.reason));
}
