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
