import { META_CODES } from '../core/codes.ts';
import { type JsonObject, readBody } from '../core/json.ts';
import type { Kind } from '../core/kind.ts';
import type { Checked } from '../core/problem.ts';
import { object } from '../core/shape.ts';
import { unknownFieldWarnings } from '../core/unknown-fields.ts';
import { type RequestWithBody, readRequest as readRequestBody } from '../http/request.ts';
import { wrongRequest } from '../registry/errors.ts';

/** A body that has to be a JSON object. Fails with `invalid_request` (130600). */
export function readObject(body: unknown): JsonObject {
  return readBody(body as Buffer | undefined, { number: META_CODES.notJson.code }, 'it must be an object');
}

/** The same for a body that may be left out. */
export function readOptionalObject(body: unknown): JsonObject {
  return body === undefined || (body as Buffer).length === 0 ? {} : readObject(body);
}

const NO_FIELDS = object<Record<string, never>>({});

/** Of an operation that takes nothing from its body: the answer will name each field of one that was sent all the same. Fails as `readObject` does. */
export function readNoFields(request: RequestWithBody): void {
  request.warnings = unknownFieldWarnings(NO_FIELDS, readOptionalObject(request.body));
}

/**
 * The body of a request as `read` understands it; the answer will name the fields that `shape` does not have, whether it succeeds or
 * not. Fails with `invalid_request`: 130600, or 4104 with every problem.
 */
export function readRequest<T>(
  request: RequestWithBody,
  shape: Kind<unknown>,
  read: (body: JsonObject) => Checked<T>,
): T {
  return accept(readRequestBody(request, shape, read, readObject));
}

/** The member `warnings` at the end of an answer that is written as text; `''` when there is nothing to warn of. */
export function warningsMember(warnings: readonly string[] | null): string {
  return warnings === null || warnings.length === 0 ? '' : `,"warnings":${JSON.stringify(warnings)}`;
}

/** The value that was read, or all its problems as one error (4104). */
export function accept<T>(checked: Checked<T>): T {
  if (!checked.ok) throw wrongRequest(checked.problems);
  return checked.value;
}
