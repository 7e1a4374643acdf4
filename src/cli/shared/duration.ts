import { usageError } from './exit.ts';

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * Parses `90s`, `15m`, `1h`, `7d` or `500ms` into milliseconds; a bare number counts seconds. Fails with a
 * usage error that names `flag`.
 */
export function parseDurationMs(text: string, flag: string): number {
  const match = /^(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d)?$/.exec(text.trim());
  const ms = match === null ? 0 : Math.round(Number(match[1]) * (UNIT_MS[match[2] ?? 's'] ?? 0));
  if (ms <= 0 || !Number.isSafeInteger(ms)) {
    throw usageError(`${flag} must be a time such as 90s, 15m, 1h or 7d, not ${JSON.stringify(text)}.`);
  }
  return ms;
}
