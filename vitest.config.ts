import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { FileOrder } from './test/parts/file-order.ts';
import { currentScope, filesOutside } from './test/scope.ts';

/** Files that replace a module or measure their whole process. Each has a worker of its own. */
const ALONE = [
  'src/cluster/tls.test.ts',
  'src/functions/log-merge.test.ts',
  'src/api/jobs/jobs.test.ts',
  'src/sandbox/host/logs.test.ts',
  'src/telemetry/tracer.test.ts',
  'test/agents/memory.test.ts',
];

/** Files outside of the scope of this run. */
const OUTSIDE = [...filesOutside(currentScope(), import.meta.dirname)];

/** Set-ups of the parts that the tests of a run share. */
const PARTS = ['test/e2e/build.ts', 'test/parts/docker-shared.ts', 'test/parts/kubernetes.ts'];

/** Tests that end parts which the tests of a run share. */
const FAULTS = 'test/faults/**/*.test.ts';

/** Configuration of Vitest: the files of the scope, their order, and limits for a busy machine. */
export default defineConfig({
  test: {
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 60_000,
    // As `test/parts/patience.ts` has it for `vi.waitFor`.
    expect: { poll: { timeout: 30_000, interval: 20 } },
    setupFiles: 'test/parts/patience.ts',
    // `test/agents/memory.test.ts` counts objects by an experimental function of Node.
    execArgv: ['--disable-warning=ExperimentalWarning'],
    // The AWS SDK warns about its end of support for Node 20, which Rookery supports.
    env: { AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: 'true' },
    // A test file uses a core for about half of its time, with its servers and sandboxes. One worker more
    // than cores uses the other half; further workers only slow each other down.
    maxWorkers: Math.min(4, availableParallelism() + 1),
    // Limit for `test.concurrent` in the Python unit tests, whose interpreters take a core each.
    maxConcurrency: 2,
    sequence: { sequencer: FileOrder },
    projects: [
      {
        extends: true,
        test: {
          name: 'shared',
          include: ['{src,test,dashboard,scripts,clients}/**/*.test.ts'],
          exclude: [...ALONE, FAULTS, ...OUTSIDE],
          globalSetup: PARTS,
          // Files share a worker, which loads modules once: half of the processor time of most files.
          isolate: false,
        },
      },
      {
        extends: true,
        test: { name: 'alone', include: ALONE, exclude: OUTSIDE, globalSetup: PARTS },
      },
      {
        extends: true,
        test: {
          name: 'faults',
          include: [FAULTS],
          exclude: OUTSIDE,
          globalSetup: PARTS,
          // These tests end parts that all other tests use, so they run after the others, one at a time.
          sequence: { groupOrder: 1 },
          maxWorkers: 1,
        },
      },
    ],
  },
});
