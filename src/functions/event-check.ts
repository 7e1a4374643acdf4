import { SERVICE_CODES } from '../core/codes.ts';
import { invalidRequest } from '../core/error.ts';
import { type JsonObject, parseJson } from '../core/json.ts';
import { faultOf } from '../core/json-schema.ts';

/** Checks a JSON event against the schema of its function. Fails with `invalid_request` (200400). */
export function checkEvent(schema: JsonObject, event: Buffer): void {
  const parsed = parseJson(event);
  const fault = parsed.ok ? faultOf(schema, parsed.value, 'event') : `event: ${parsed.word}`;
  if (fault === null) return;
  throw invalidRequest(`the event does not fit the inputSchema of the function: ${fault}`, {
    number: SERVICE_CODES.badCall.code,
  });
}
