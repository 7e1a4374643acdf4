import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../scripts/command.ts';
import type { LoadRequest, LoadResult } from './raw-load.ts';

export type { LoadResult };

const HERE = fileURLToPath(new URL('.', import.meta.url));

let hasWrk: Promise<boolean> | undefined;

/** Returns the name of the load generator. One run uses the same generator for both sides of a ratio. */
export async function generatorName(): Promise<string> {
  hasWrk ??= run('wrk', ['-v'], { capture: true }).then(({ code }) => code !== 127);
  return (await hasWrk) ? 'wrk' : 'raw sockets in two Node processes';
}

/**
 * Generates load from callers that each send the next request when the last one is answered.
 * The generator is a separate process, so that it shares no event loop with a server. It is wrk if installed,
 * because wrk needs the least processor time.
 */
export async function load(request: LoadRequest): Promise<LoadResult> {
  // Only the raw generator measures the latency of successes and refusals separately.
  if ((await generatorName()) !== 'wrk' || request.refusedPauseMs !== undefined) return await rawLoad(request);
  const threads = Math.min(2, request.connections);
  const seconds = Math.max(1, Math.round(request.durationMs / 1000));
  const { output } = await run(
    'wrk',
    [
      ...['-t', String(threads), '-c', String(request.connections), '-d', `${seconds}s`, '--timeout', '10s'],
      ...['-s', join(HERE, 'wrk.lua'), request.url],
    ],
    {
      capture: true,
      env: {
        BENCH_PATHS: request.paths.join(' '),
        BENCH_BODY: request.body,
        BENCH_TOKEN: request.token ?? '',
        BENCH_METHOD: request.method ?? 'POST',
      },
    },
  );
  const line = /^RESULT (\{.*\})$/m.exec(output)?.[1];
  if (line === undefined) throw new Error(`wrk did not report a result:\n${output}`);
  const measured = JSON.parse(line) as Omit<LoadResult, 'refused'> & { failed: number; requests: number };
  return { ...measured, requests: measured.requests - measured.failed, refused: 0 };
}

/** Generates load from two processes, because a single one is busier than the service that it calls. */
async function rawLoad(request: LoadRequest): Promise<LoadResult> {
  const half = Math.floor(request.connections / 2);
  const shares = half === 0 ? [request.connections] : [request.connections - half, half];
  const results = await Promise.all(shares.map(connections => rawProcess({ ...request, connections })));
  const sum = (of: (result: LoadResult) => number) => results.reduce((total, result) => total + of(result), 0);
  // Takes the larger of both times, so that the report is never better than the measurement.
  const largest = (of: (result: LoadResult) => number) => Math.max(...results.map(of));
  const refused = sum(result => result.refused);
  return {
    requests: sum(result => result.requests),
    refused,
    failed: sum(result => result.failed),
    seconds: largest(result => result.seconds),
    p50Micros: largest(result => result.p50Micros),
    p99Micros: largest(result => result.p99Micros),
    maxMicros: largest(result => result.maxMicros),
    ...(refused > 0 ? { refusedP99Micros: largest(result => result.refusedP99Micros ?? 0) } : {}),
  };
}

async function rawProcess(request: LoadRequest): Promise<LoadResult> {
  const { code, output } = await run(
    process.execPath,
    ['--import', 'tsx', join(HERE, 'raw-load.ts'), JSON.stringify(request)],
    { capture: true },
  );
  if (code !== 0) throw new Error(`the load generator failed:\n${output}`);
  return JSON.parse(output) as LoadResult;
}
