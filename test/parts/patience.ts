import { vi } from 'vitest';

/**
 * Timeout of a wait: a busy machine may delay a condition by seconds. A wait ends when its condition holds.
 */
const PATIENCE_MS = 30_000;

const { waitFor } = vi;
vi.waitFor = (condition, options) =>
  waitFor(condition, typeof options === 'number' ? options : { timeout: PATIENCE_MS, ...options });
