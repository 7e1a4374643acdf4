/**
 * Returns a text that every database stores unchanged: NUL becomes U+FFFD. SQLite's binding truncates a text
 * at NUL, and PostgreSQL rejects it. UTF-8 encoding replaces half of a surrogate pair in the same way.
 */
export function storable(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\uFFFD') : text;
}
