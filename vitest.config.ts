import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { FileOrder } from './test/parts/file-order.ts';

/** Tests that start the built program: `node dist/main.js`. */
const BUILT = [
  'test/e2e/**/*.test.ts',
  'test/cli/**/*.test.ts',
  'test/jobs/**/*.test.ts',
  'test/openapi/**/*.test.ts',
  'test/docs/commands.test.ts',
];

/** Tests beside their sources. Files share a worker and its modules, which are loaded once: half of the processor time of most. */
const UNITS = 'src/**/*.test.ts';

/** Those that replace a module for themselves, or look at what a whole process has: each has a worker of its own. */
const ALONE = [
  'src/cluster/tls.test.ts',
  'src/functions/log-merge.test.ts',
  'src/frontend/jobs/tail.test.ts',
  'src/sandbox/host/logs.test.ts',
  'src/telemetry/tracer.test.ts',
];

/** Tests that end parts which the tests of a run share. */
const FAULTS = 'test/faults/**/*.test.ts';

export default defineConfig({
  test: {
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 60_000,
    // As long as `test/parts/patience.ts` has it for `vi.waitFor`.
    expect: { poll: { timeout: 10_000 } },
    setupFiles: 'test/parts/patience.ts',
    // About half of the time of a file is processor time, its servers and sandboxes included; the other half it waits for starts, ends and
    // intervals. One worker more than there are cores uses that; with more, everything would only be slower.
    maxWorkers: Math.min(4, availableParallelism() + 1),
    sequence: { sequencer: FileOrder },
    projects: [
      {
        extends: true,
        test: { name: 'units', include: [UNITS], exclude: ALONE, isolate: false },
      },
      {
        extends: true,
        test: {
          name: 'parts',
          include: [...ALONE, '{dashboard,test,scripts,clients}/**/*.test.ts'],
          exclude: [...BUILT, FAULTS],
          globalSetup: ['test/parts/docker-shared.ts', 'test/parts/kubernetes.ts'],
        },
      },
      {
        extends: true,
        test: {
          name: 'built',
          include: BUILT,
          globalSetup: ['test/e2e/build.ts', 'test/parts/docker-shared.ts', 'test/parts/kubernetes.ts'],
        },
      },
      {
        extends: true,
        test: {
          name: 'faults',
          include: [FAULTS],
          globalSetup: ['test/e2e/build.ts', 'test/parts/docker-shared.ts', 'test/parts/kubernetes.ts'],
          // What they end, all other tests use: they come after those, one after the other.
          sequence: { groupOrder: 1 },
          maxWorkers: 1,
        },
      },
    ],
  },
});
