import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'scripts/**/*.test.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Tests that start real servers, launchers and sandboxes: more workers than cores would only make them wait for each other.
    maxWorkers: Math.min(4, availableParallelism()),
  },
});
