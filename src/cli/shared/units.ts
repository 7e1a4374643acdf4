import { usageError } from './exit.ts';

const MEMORY_MB: Readonly<Record<string, number>> = {
  '': 1,
  m: 1,
  mb: 1,
  mi: 1,
  mib: 1,
  g: 1024,
  gb: 1024,
  gi: 1024,
  gib: 1024,
};

/** Reads a flag for memory in MB: `512`, `512m`, `4g`. */
export function parseMemoryMb(text: string, flag = '--memory'): number {
  const [, number = '', unit = ''] = /^(\d{1,12}(?:\.\d{1,3})?)\s*([a-z]*)$/i.exec(text) ?? [];
  const factor = MEMORY_MB[unit.toLowerCase()];
  const megabytes = number === '' || factor === undefined ? Number.NaN : Number(number) * factor;
  if (Number.isInteger(megabytes)) return megabytes;
  throw usageError(`${flag} must be a whole number of MB, or with a unit (512m, 4g), not ${JSON.stringify(text)}.`);
}

/** Reads a flag for CPU in millicores: `500`, `500m`; with a point in cores: `0.5`. */
export function parseCpuMillis(text: string, flag = '--cpu'): number {
  if (/^\d{1,12}m?$/.test(text)) return Number(text.replace('m', ''));
  if (/^\d{1,9}\.\d{1,3}$/.test(text)) return Math.round(Number(text) * 1000);
  throw usageError(
    `${flag} must be a whole number of millicores, or cores with a point (0.5), not ${JSON.stringify(text)}.`,
  );
}

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

/** Formats a count with its noun: `1 agent`, `2 agents`. */
export function counted(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`;
}
