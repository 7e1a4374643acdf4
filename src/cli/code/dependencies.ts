import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DEPENDENCY_FILES, installerOf } from '../../core/dependencies.ts';
import { isJsonObject } from '../../core/json.ts';
import type { Client } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import { followLog } from '../shared/followed-log.ts';
import { type Io, pump } from '../shared/io.ts';
import { printable } from '../shared/print.ts';

export interface DependencyOptions {
  /** False: `--no-dependencies`. */
  readonly dependencies?: boolean;
}

/**
 * Returns true if files beside the code declare dependencies for this runtime. Checks only their existence;
 * the service reads them.
 */
export function asksForDependencies(code: string, runtime: string, { dependencies }: DependencyOptions = {}): boolean {
  const tool = installerOf(runtime);
  if (dependencies === false || tool === null) return false;
  const [first, ...others] = DEPENDENCY_FILES[tool];
  const names = tool === 'pip' ? [first, ...others] : [first];
  return names.some(name => existsSync(join(resolve(code), name)));
}

/** Matches the lines that pip prints for each package. */
const PROGRESS =
  /^\s*(?:Collecting|Downloading|Using cached|Obtaining|Requirement already|Installing collected|[━╸╺-]{3})/;

/**
 * Yields the lines of a log without pip's progress and without control characters, which install scripts may
 * print.
 */
export async function* linesToShow(log: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of log) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    const shown = lines.map(printable).filter(line => !PROGRESS.test(line));
    if (shown.length > 0) yield Buffer.from(`${shown.join('\n')}\n`);
  }
  if (rest !== '') yield Buffer.from(`${printable(rest)}\n`);
}

/** Makes the service install the code's dependencies, and shows the log. Fails when the build fails. */
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
    const log = { path: `${path}/logs`, query: new URLSearchParams(), isWhole: true };
    await pump(linesToShow(followLog(io, client, log)), io.err, io.signal);
  } catch (error) {
    if (io.signal.aborted) throw new CliError('Interrupted.', EXIT.failure);
    // Another replica may own the build. The request that needs the build waits for it and reports its
    // result.
    if (error instanceof CliError && error.status === 404) return;
    throw error;
  }
  const ended = await client.json('GET', path);
  if (!isJsonObject(ended.build) || ended.build.status !== 'FAILED') return;
  // Further lines of the reason repeat the end of the log, which is already printed.
  const [reason = ''] = String(ended.build.reason).split('\n');
  throw new CliError(`${reason.replace(/:$/, '')}: see the lines above.`);
}
