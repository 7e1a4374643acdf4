import { run } from '../../scripts/command.ts';

/**
 * Global set-up of Vitest for tests of the built server: builds once, unless `npm test` has already built.
 */
export async function setup(): Promise<void> {
  if (process.env.ROOKERY_TEST_BUILT === '1') return;
  const { code, output } = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts'], { capture: true });
  if (code !== 0) throw new Error(`the build failed:\n${output}`);
  // No other set-up builds again while tests run from the build.
  process.env.ROOKERY_TEST_BUILT = '1';
}
