import { META_CODES } from '../../core/codes.ts';
import { type JsonObject, readBody } from '../../core/json.ts';
import type { Kind } from '../../core/kind.ts';
import type { Checked } from '../../core/problem.ts';
import { object } from '../../core/shape.ts';
import { unknownFieldWarnings } from '../../core/unknown-fields.ts';
import { type RequestWithBody, readRequest as readRequestBody } from '../../http/request.ts';
import { wrongRequest } from '../../registry/errors.ts';

/** Parses a body that has to be a JSON object. Fails with `invalid_request` (130600). */
export function readObject(body: unknown): JsonObject {
  return readBody(body as Buffer | undefined, { number: META_CODES.notJson.code }, 'it must be an object');
}

/** Parses an optional body that has to be a JSON object. Fails with `invalid_request` (130600). */
export function readOptionalObject(body: unknown): JsonObject {
  return body === undefined || (body as Buffer).length === 0 ? {} : readObject(body);
}

const NO_FIELDS = object<Record<string, never>>({});

/** Warns about each field of the body, for an operation that reads no body. Fails as `readObject` does. */
export function readNoFields(request: RequestWithBody): void {
  request.warnings = unknownFieldWarnings(NO_FIELDS, readOptionalObject(request.body));
}

/**
 * Parses a body with `read`, and stores warnings about the fields that `shape` does not have.
 * The answer contains these warnings for success and failure.
 * Fails with `invalid_request`: 130600, or 4104 with every problem.
 */
export function readRequest<T>(
  request: RequestWithBody,
  shape: Kind<unknown>,
  read: (body: JsonObject) => Checked<T>,
): T {
  return accept(readRequestBody(request, shape, read, readObject));
}

/**
 * Returns the member `warnings` for the end of an answer that is written as text, or `''` without warnings.
 */
export function warningsMember(warnings: readonly string[] | null): string {
  return warnings === null || warnings.length === 0 ? '' : `,"warnings":${JSON.stringify(warnings)}`;
}

/** Returns the parsed value. Fails with all its problems in one error (4104). */
export function accept<T>(checked: Checked<T>): T {
  if (!checked.ok) throw wrongRequest(checked.problems);
  return checked.value;
}
