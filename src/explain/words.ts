/** Returns an RFC 3339 time without fractions of a second. */
export function withoutMs(time: string): string {
  return time.replace(/\.\d+Z$/, 'Z');
}

/** Ends a foreign text like a sentence, on its first line. */
export function sentence(text: string): string {
  const line = text.trim().split('\n', 1)[0] ?? '';
  return /[.!?…]$/.test(line) ? line : `${line}.`;
}

/** Returns `1 call`, `2 calls`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Returns milliseconds as text: `3.1ms`, `2.50s`. */
export function inWords(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(1)}ms` : `${(ms / 1000).toFixed(2)}s`;
}
