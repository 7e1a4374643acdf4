/**
 * A text as every database keeps it. SQLite's binding cuts a text off at a NUL, and PostgreSQL refuses it: it becomes U+FFFD, as half of a pair of
 * surrogates does in UTF-8.
 */
export function storable(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\uFFFD') : text;
}
