import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

/** Tests that start the built program: `node dist/main.js`. */
const BUILT = [
  'test/e2e/**/*.test.ts',
  'test/cli/**/*.test.ts',
  'test/jobs/**/*.test.ts',
  'test/openapi/**/*.test.ts',
  'test/docs/commands.test.ts',
];

export default defineConfig({
  test: {
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 60_000,
    // As long as `test/parts/patience.ts` has it for `vi.waitFor`.
    expect: { poll: { timeout: 10_000 } },
    setupFiles: 'test/parts/patience.ts',
    // Tests start real servers, zygotes and sandboxes: more workers than cores would only make them wait for each other.
    maxWorkers: Math.min(4, availableParallelism()),
    projects: [
      {
        extends: true,
        test: {
          name: 'parts',
          include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'scripts/**/*.test.ts'],
          exclude: BUILT,
          globalSetup: 'test/parts/docker-shared.ts',
        },
      },
      {
        extends: true,
        test: { name: 'built', include: BUILT, globalSetup: ['test/e2e/build.ts', 'test/parts/docker-shared.ts'] },
      },
    ],
  },
});
