/** Returns the time since a moment as `12s`, `5m`, `3h` or `9d`; `-` when it is unknown. */
export function age(since: unknown, nowMs: number = Date.now()): string {
  const ms = typeof since === 'string' ? nowMs - Date.parse(since) : Number.NaN;
  if (Number.isNaN(ms)) return '-';
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
