import { failAtFirst, readBody } from '../../core/json.ts';
import { text } from '../../core/kind.ts';
import { LIMITS } from '../../core/limits.ts';
import { type ObjectKind, object, optional } from '../../core/shape.ts';

/** The body of PublishVersion. Empty texts: not sent. */
export interface VersionRequest {
  readonly Description: string;
  readonly RevisionId: string;
  readonly CodeSha256: string;
}

const description = text({ maxChars: LIMITS.functionDescriptionChars });
const shortText = text({ maxChars: 1024 });

const VERSION = object<VersionRequest>({
  Description: optional(description, ''),
  RevisionId: optional(shortText, ''),
  CodeSha256: optional(shortText, ''),
});

export function readVersionRequest(body: unknown): VersionRequest {
  return readRequest(VERSION, body);
}

/** Reads a body, which clients leave out if they send no field. Fails with the first problem. */
function readRequest<T>(kind: ObjectKind<T>, body: unknown): T {
  const bytes = body as Buffer | undefined;
  const sent = bytes === undefined || bytes.length === 0 ? {} : readBody(bytes);
  // Without a value, `failAtFirst` has thrown.
  return kind.read(sent, '', failAtFirst) as T;
}
