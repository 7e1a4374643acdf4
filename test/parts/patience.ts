import { vi } from 'vitest';

/**
 * Timeout of a wait: a busy machine may delay a condition by seconds. A wait ends when its condition holds.
 */
const PATIENCE_MS = 30_000;

/** Interval between checks. Vitest's 50 ms add up to seconds in files with many waits. */
const CHECK_EVERY_MS = 20;

const { waitFor } = vi;
vi.waitFor = (condition, options) =>
  waitFor(condition, {
    timeout: PATIENCE_MS,
    interval: CHECK_EVERY_MS,
    ...(typeof options === 'number' ? { timeout: options } : options),
  });
