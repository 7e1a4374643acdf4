import { invalidRequest } from '../../core/error.ts';
import { POOL_LABELS } from '../../core/function-call.ts';
import { LIMITS } from '../../core/limits.ts';
import { Header } from '../../core/parameter.ts';

/** The longest timeout of any function. The instance's own limit is smaller or equal. */
const LONGEST_CALL_MS = LIMITS.functionTimeoutSeconds.max * 1000;

export const INVOKE_HEADERS = {
  timeoutMs: new Header(
    'X-Invoke-Timeout-Ms',
    { type: 'integer', minimum: 1, description: 'Milliseconds, waiting included; can only shorten the bound.' },
    LONGEST_CALL_MS,
    (text, name) => {
      if (!/^0*[1-9]\d*$/.test(text)) {
        throw invalidRequest(`the header ${name} must be a positive integer, got "${text}"`);
      }
      return Math.min(Number(text), LONGEST_CALL_MS);
    },
  ),
};

export const CREATE_HEADERS = {
  poolLabels: POOL_LABELS,
  idempotencyKey: new Header<string | undefined>(
    'Idempotency-Key',
    {
      minLength: 1,
      maxLength: LIMITS.idempotencyKeyChars,
      description: 'The same key and body answer with the same instance.',
    },
    undefined,
    (text, name) => {
      if (text === '' || text.length > LIMITS.idempotencyKeyChars) {
        throw invalidRequest(`the header ${name} must have 1 to ${LIMITS.idempotencyKeyChars} characters`);
      }
      return text;
    },
  ),
};
