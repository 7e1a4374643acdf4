import { vi } from 'vitest';

/** On a machine that is busy with something else a second is nothing; a wait for a condition ends as soon as it holds. */
const PATIENCE_MS = 10_000;

const { waitFor } = vi;
vi.waitFor = (condition, options) =>
  waitFor(condition, typeof options === 'number' ? options : { timeout: PATIENCE_MS, ...options });
