/**
 * Records the terminal and takes the dashboard's pictures for README.md: `npm run pictures`.
 * The argument `terminal` or `dashboard` selects one of both. The dashboard needs a browser. `npm run check`
 * reports stale pictures.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ARGUMENTS, ROOT, run } from '../command.ts';
import { DASHBOARD_AGE, dashboardHash, PICTURES, RECORDING, TERMINAL } from './age.ts';
import { takeDashboardPictures } from './dashboard-pictures.ts';
import { recordTerminal } from './terminal-recording.ts';
import { terminalSvg } from './terminal-svg.ts';

const isWanted = (what: string) => ARGUMENTS.length === 0 || ARGUMENTS.includes(what);

const build = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts'], { capture: true });
if (build.code !== 0) throw new Error(`the build failed:\n${build.output}`);
mkdirSync(join(ROOT, PICTURES), { recursive: true });
if (isWanted('terminal')) {
  const recording = await recordTerminal();
  writeFileSync(join(ROOT, RECORDING), `${JSON.stringify(recording, null, 2)}\n`);
  writeFileSync(join(ROOT, TERMINAL), terminalSvg(recording));
}
if (isWanted('dashboard')) {
  await takeDashboardPictures(join(ROOT, PICTURES));
  writeFileSync(join(ROOT, DASHBOARD_AGE), `${await dashboardHash()}\n`);
}
