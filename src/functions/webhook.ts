import { messageOf } from '../core/error.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { type AsyncAnswer, asyncAnswerJson } from './async-calls.ts';

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
