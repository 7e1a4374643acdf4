import { FUNCTION_KINDS, type FunctionKind } from './function.ts';
import { revisionId } from './function-fields.ts';
import type { JsonObject } from './json.ts';
import { oneOf, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { type Checked, Problems } from './problem.ts';
import { absentValues, object, optional, readPresent } from './shape.ts';

export interface PublishRequest {
  readonly revisionId: string;
  /** `''`: the number is made from the time. The revision is checked before the syntax of the number. */
  readonly versionNumber: string;
  readonly versionDesc: string;
  /** `''`: the function's own kind. */
  readonly kind: FunctionKind | '';
}

const description = text({ maxChars: LIMITS.functionDescriptionChars });

/** The body of a publish. */
export const PUBLISH = object<PublishRequest>({
  revisionId,
  versionNumber: optional(description, '', 'Empty or absent: made from the time.'),
  versionDesc: optional(description, ''),
  kind: optional<FunctionKind | ''>(oneOf(['', ...FUNCTION_KINDS]), '', 'If sent, the function’s own.'),
});

export function readPublish(body: JsonObject): Checked<PublishRequest> {
  const problems = new Problems();
  const { present } = readPresent(PUBLISH.fields, body, '', problems.add);
  return problems.check({ ...absentValues(PUBLISH.fields), ...present });
}
