import { run } from '../../scripts/command.ts';

/** Vitest's global set-up of the tests that start the built server: builds once. `npm test` has built already and says so. */
export async function setup(): Promise<void> {
  if (process.env.ROOKERY_TEST_BUILT === '1') return;
  const { code, output } = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts'], { capture: true });
  if (code !== 0) throw new Error(`the build failed:\n${output}`);
  // Nobody builds again while tests run from it.
  process.env.ROOKERY_TEST_BUILT = '1';
}
