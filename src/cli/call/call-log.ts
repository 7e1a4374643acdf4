import { LATEST } from '../../core/urn.ts';
import { logOffsetMs, logRangeOf } from '../../explain/waterfall.ts';
import { callMeta, metaPath } from '../function/meta-call.ts';
import { functionPath, functionUrl } from '../function/records.ts';
import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Call } from './records.ts';

/** A line that an instance printed during a call. */
export interface CallLine {
  readonly text: string;
  /** False if another call of the instance may have printed the line. */
  readonly is_certain: boolean;
  /** Time since the start of the call; null: the line shows none. */
  readonly offset_ms: number | null;
}

export interface CallLog {
  readonly lines: readonly CallLine[];
  /** True if the instance printed more than `lines` has. */
  readonly is_cut: boolean;
}

/** Bounds of the lines that are shown. */
const MAX_LINES = 200;
const MAX_BYTES = 64 * 1024;
const TIMEOUT_MS = 30_000;

/**
 * Returns the lines that the instance of a call printed while the handler ran. Null: the log is gone, or the
 * call ran nowhere. An instance that runs one call at a time printed them for this call. Of others, only
 * lines with the trace id are certain.
 */
export async function readCallLog(client: Client, call: Call): Promise<CallLog | null> {
  if (call.instance_id === '') return null;
  try {
    const { path, isAlone } = await logOf(client, call);
    const { text, isCut } = await beginningOf(client, path);
    const lines = text.split('\n');
    // The text ends with a newline, or inside a line that was cut.
    lines.pop();
    const shown = lines.slice(0, MAX_LINES);
    return {
      lines: shown.map(line => ({
        text: line,
        is_certain: isAlone || hasTrace(line, call.trace_id),
        offset_ms: logOffsetMs(line, call),
      })),
      is_cut: isCut || lines.length > MAX_LINES,
    };
  } catch (error) {
    // The instance has ended, or the log is on a machine that does not answer.
    if (error instanceof CliError) return null;
    throw error;
  }
}

async function logOf(client: Client, call: Call): Promise<{ readonly path: string; readonly isAlone: boolean }> {
  const { instance_id } = call;
  const query = new URLSearchParams({ ...logRangeOf(call) });
  if (call.kind === 'agent') {
    return { path: `/api/agent/${encodeURIComponent(instance_id)}/logs?${query}`, isAlone: true };
  }
  query.set('instance', instance_id);
  const version = call.version === 'latest' ? LATEST : call.version;
  const path = metaPath(functionUrl(call.function ?? ''), { versionNumber: version });
  const found = (await callMeta(client, 'GET', path)).function as Readonly<Record<string, unknown>>;
  const urn = String(found.functionVersionUrn);
  return { path: functionPath(urn, `logs?${query}`), isAlone: Number(found.concurrentNum) === 1 };
}

async function beginningOf(client: Client, path: string): Promise<{ readonly text: string; readonly isCut: boolean }> {
  const answer = await client.stream('GET', path, { timeoutMs: TIMEOUT_MS });
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_BYTES) break;
    }
  } catch (error) {
    throw new CliError(`The connection broke (${(error as Error).message}).`);
  } finally {
    answer.destroy();
  }
  return { text: Buffer.concat(chunks).subarray(0, MAX_BYTES).toString(), isCut: bytes > MAX_BYTES };
}

/** A trace id is written with or without dashes. */
function hasTrace(line: string, traceId: string): boolean {
  return line.includes(traceId) || line.includes(traceId.replaceAll('-', ''));
}
