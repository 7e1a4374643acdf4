/** Parts of a time in the browser's zone. */

/** Returns the day, as `2026-01-31`. */
export function dayOf(date: Date): string {
  return `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
}

/** Returns the time of day, as `13:05:00`. */
export function timeOf(date: Date): string {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(':');
}

/** Returns the difference of the zone from UTC, as `UTC+01:00`. */
export function zoneOf(date: Date): string {
  const minutes = -date.getTimezoneOffset();
  if (minutes === 0) return 'UTC';
  const amount = Math.abs(minutes);
  return `UTC${minutes < 0 ? '−' : '+'}${twoDigits(Math.floor(amount / 60))}:${twoDigits(amount % 60)}`;
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0');
}
