import { type JsonObject, readBody } from '../core/json.ts';
import type { Kind } from '../core/kind.ts';
import { unknownFieldWarnings } from '../core/unknown-fields.ts';

/** A request as far as its body is concerned. */
export interface RequestWithBody {
  readonly body: unknown;
  warnings: readonly string[] | null;
}

/**
 * The body of a request as `read` understands it; the answer will name the fields that `shape` does not have. `parse` is the entry's own
 * way to refuse what is no JSON object. Fails with `invalid_request`.
 */
export function readRequest<T>(
  request: RequestWithBody,
  shape: Kind<unknown>,
  read: (body: JsonObject) => T,
  parse: (body: unknown) => JsonObject = body => readBody(body as Buffer | undefined),
): T {
  const body = parse(request.body);
  const value = read(body);
  request.warnings = unknownFieldWarnings(shape, body);
  return value;
}
