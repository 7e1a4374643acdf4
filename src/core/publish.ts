import { type JsonObject, oneOf, Problems, text } from './field-reader.ts';
import { FUNCTION_KINDS, type FunctionKind } from './function.ts';
import { type Checked, readRequiredText } from './function-fields.ts';
import { LIMITS } from './limits.ts';
import { noteAsked } from './unknown-fields.ts';

export interface PublishRequest {
  readonly revisionId: string;
  /** `''`: a number is made from the time. Its syntax is checked after the revision. */
  readonly versionNumber: string;
  readonly versionDesc: string;
  /** `''`: the function's own. */
  readonly kind: FunctionKind | '';
}

/** Reads the body of a publish. */
export function readPublish(body: JsonObject): Checked<PublishRequest> {
  const problems = new Problems();
  const revisionId = readRequiredText(body, 'revisionId', problems);
  const optional = <T extends string>(field: string, read: typeof readText | ReturnType<typeof oneOf<T>>) => {
    const value = body[field];
    noteAsked(body, field);
    return value === undefined || value === null ? '' : (read(value, field, problems.add) ?? '');
  };
  const versionNumber = optional('versionNumber', readText);
  const versionDesc = optional('versionDesc', readText);
  const kind = optional('kind', oneOf(['', ...FUNCTION_KINDS])) as FunctionKind | '';
  if (problems.any) return { ok: false, problems: problems.found };
  return { ok: true, value: { revisionId, versionNumber, versionDesc, kind } };
}

const readText = text({ maxChars: LIMITS.functionDescriptionChars });
