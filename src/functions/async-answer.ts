import { CALL_CODES } from '../core/codes.ts';
import { messageOf, ServiceError } from '../core/error.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { checkedOutcome } from '../runtime/call.ts';
import type { findAsyncCall } from '../storage/queries/async-calls.ts';
import type { AsyncCallStatus } from '../storage/schema.ts';
import type { FunctionResult } from './function-invoker.ts';

/** Stored call, as the API answers it. */
export interface AsyncAnswer {
  readonly requestId: string;
  readonly status: AsyncCallStatus;
  /**
   * JSON of the value as the runtime wrote it. Parsing and writing it again would lose digits of numbers, and
   * fail for deep nesting.
   */
  readonly resultJson?: string;
  readonly error?: { readonly code: number; readonly message: string };
  readonly createdAt: string;
  readonly completedAt?: string;
}

/** Returns the JSON of an answer. */
export function asyncAnswerJson({ resultJson, ...answer }: AsyncAnswer): string {
  const json = JSON.stringify(answer);
  return resultJson === undefined ? json : `${json.slice(0, -1)},"result":${resultJson}}`;
}

/** Returns a stored call as the API answers it. */
export function toAsyncAnswer(row: NonNullable<Awaited<ReturnType<typeof findAsyncCall>>>): AsyncAnswer {
  return {
    requestId: row.id,
    status: row.status,
    ...(row.result === null ? {} : { resultJson: row.result }),
    ...(row.error === null ? {} : { error: JSON.parse(row.error) as { code: number; message: string } }),
    createdAt: new Date(row.created_at_ms).toISOString(),
    ...(row.completed_at_ms === null ? {} : { completedAt: new Date(row.completed_at_ms).toISOString() }),
  };
}

const RETRIED: ReadonlySet<number> = new Set(CALL_CODES.filter(row => row.isRetried).map(row => row.code));

/** The end of an asynchronous call: its result or its error. */
export interface CallEnd {
  /** JSON text. */
  readonly result?: string;
  readonly error?: { readonly code: number; readonly message: string };
  /** True if the call failed before it had a slot, and for a reason that may pass. */
  readonly mayPass?: boolean;
}

/** Runs a call and returns its end. Never rejects. */
export async function endOf(invoke: () => Promise<FunctionResult>): Promise<CallEnd> {
  try {
    const outcome = checkedOutcome((await invoke()).outcome);
    if (outcome.ok) return { result: outcome.data.toString() };
    return { error: { code: outcome.code, message: outcome.text } };
  } catch (error) {
    const code = error instanceof ServiceError ? (error.number ?? 500) : 500;
    // These codes also mean that no instance could ever fit; waiting does not help then.
    const isForGood = error instanceof ServiceError && error.code === 'failed_precondition';
    return { error: { code, message: messageOf(error) }, mayPass: RETRIED.has(code) && !isForGood };
  }
}

const ATTEMPTS = 4;
const RETRY = { firstMs: 1_000, longestMs: 60_000, factor: 4 };
const TIMEOUT_MS = 10_000;

/**
 * Posts the end of an asynchronous call, as the API answers it, to the address that its caller named. Any
 * status except 2xx is retried with growing pauses. The result stays readable either way. Never rejects.
 */
export async function deliverWebhook(
  url: string,
  answer: AsyncAnswer,
  log: { warn(fields: object, message: string): void },
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const problem = await post(url, answer);
    if (problem === null) return;
    if (attempt === ATTEMPTS) {
      log.warn({ requestId: answer.requestId, reason: problem }, 'webhook delivery failed');
      return;
    }
    await pause(backoffMs(RETRY, attempt));
  }
}

/** Returns null when the address accepted the report, otherwise the problem. */
async function post(url: string, answer: AsyncAnswer): Promise<string | null> {
  try {
    // Loaded with the first webhook: loading it earlier would noticeably slow every start.
    const { request } = await import('undici');
    const { statusCode, body } = await request(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: asyncAnswerJson(answer),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await body.dump();
    return statusCode >= 200 && statusCode < 300 ? null : `status ${statusCode}`;
  } catch (error) {
    return messageOf(error);
  }
}
