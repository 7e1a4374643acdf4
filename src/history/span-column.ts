import { type CallSpan, type CallSpans, readCallSpans, type SpanAttributes } from '../core/call-spans.ts';
import { LIMITS } from '../core/limits.ts';
import { REDACTED, type Redaction } from './redaction.ts';
import type { SecretValues } from './secret-values.ts';

export interface SpanColumnOptions {
  readonly redaction: Redaction;
  readonly secrets: SecretValues;
  /** False: attributes and errors are not stored. */
  readonly hasAttributes: boolean;
}

/**
 * Returns the spans of a call as JSON for its record, with hidden values replaced. The last ones above
 * `LIMITS.callSpansBytes.stored` are dropped and counted; `''` without spans.
 */
export function toSpansColumn(sent: Buffer | undefined, options: SpanColumnOptions): string {
  if (sent === undefined) return '';
  const { spans, dropped } = shownSpans(sent, options);
  const kept: string[] = [];
  let bytes = 0;
  for (const span of spans) {
    const json = JSON.stringify(span);
    bytes += Buffer.byteLength(json) + 1;
    if (bytes > LIMITS.callSpansBytes.stored) break;
    kept.push(json);
  }
  const lost = dropped + spans.length - kept.length;
  return kept.length + lost === 0 ? '' : `{"spans":[${kept.join(',')}],"dropped":${lost}}`;
}

/** Returns the spans of a SPANS frame with hidden values replaced. */
export function shownSpans(sent: Buffer, options: SpanColumnOptions): CallSpans {
  const { spans, dropped } = readCallSpans(sent.toString());
  return { spans: spans.map(span => shownSpan(span, options)), dropped };
}

function shownSpan(span: CallSpan, { redaction, secrets, hasAttributes }: SpanColumnOptions): CallSpan {
  const { valueChars } = LIMITS.callSpans;
  const shown = (text: string) => redaction.text(secrets.hide(text, text.length >= valueChars));
  const { attributes, error, name, ...times } = span;
  const shownAttributes = (all: SpanAttributes) =>
    Object.fromEntries(
      Object.entries(all).map(([key, value]) => [
        key,
        redaction.hides(key) ? REDACTED : typeof value === 'string' ? shown(value) : value,
      ]),
    );
  return {
    name: shown(name),
    ...times,
    ...(attributes !== undefined && hasAttributes && { attributes: shownAttributes(attributes) }),
    ...(error !== undefined && { error: hasAttributes ? shown(error) : '' }),
  };
}
