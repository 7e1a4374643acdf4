import { relative } from 'node:path';
import type { TestProject } from 'vitest/node';
import { ROOT, run } from '../../scripts/command.ts';

/** Tests that start the built program: `node dist/main.js`. */
const BUILT = /^test\/(e2e|cli|jobs|openapi|faults|walk)\/|^test\/docs\/(commands|pictures)/;

/**
 * Global set-up of Vitest: builds once if the run has tests of the built program, unless `npm test` has
 * already built.
 */
export async function setup({ vitest }: TestProject): Promise<void> {
  if (process.env.ROOKERY_TEST_BUILT === '1') return;
  const files = vitest.state.getPaths().map(path => relative(ROOT, path));
  if (!files.some(file => BUILT.test(file))) return;
  const { code, output } = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts'], { capture: true });
  if (code !== 0) throw new Error(`the build failed:\n${output}`);
  // No other set-up builds again while tests run from the build.
  process.env.ROOKERY_TEST_BUILT = '1';
}
