import { FUNCTION_KINDS, type FunctionKind, revisionId } from './function.ts';
import type { JsonObject } from './json.ts';
import { oneOf, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { type Checked, Problems } from './problem.ts';
import { absentValues, object, optional, readPresent } from './shape.ts';

const REVISION_ID = /^\d{17}$/;

/** Formats a time for function records: `2026-11-20 10:00:00.000 UTC`. */
export function formatTimestamp(ms: number): string {
  return `${new Date(ms).toISOString().replace('T', ' ').slice(0, 23)} UTC`;
}

/** Formats a revision id: `yyyyMMddHHmmssSSS`, UTC. */
export function formatRevisionId(ms: number): string {
  const iso = new Date(ms).toISOString();
  const part = (from: number) => iso.slice(from, from + 2);
  return iso.slice(0, 4) + part(5) + part(8) + part(11) + part(14) + part(17) + iso.slice(20, 23);
}

/**
 * Returns the id of a function's next revision. The id is the time, or one millisecond after the previous
 * revision if the clock did not advance. So ids of a function strictly increase, also as texts.
 */
export function nextRevisionId(nowMs: number, previous: string | null): string {
  const previousMs = previous === null ? Number.NEGATIVE_INFINITY : parseRevisionId(previous);
  return formatRevisionId(Math.max(nowMs, previousMs + 1));
}

/** Returns the default name of a published version: `v20261120-100000`. */
export function defaultVersionNumber(nowMs: number): string {
  const digits = formatRevisionId(nowMs);
  return `v${digits.slice(0, 8)}-${digits.slice(8, 14)}`;
}

/** Longest distance between two duplicate publishes without a number, even across the border of a second. */
export const DEFAULT_VERSION_GAP_MS = 1000;

export function parseRevisionId(id: string): number {
  if (!REVISION_ID.test(id)) throw new RangeError(`not a revision id: ${id}`);
  const part = (from: number, to: number) => Number(id.slice(from, to));
  return Date.UTC(part(0, 4), part(4, 6) - 1, part(6, 8), part(8, 10), part(10, 12), part(12, 14), part(14, 17));
}

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
