/**
 * `npm run history [-- --seconds 600] [--seed 1] [--clients 8]`: a random history with kills, frozen parts, a full disk and few descriptors,
 * checked as a whole. Exit code 1 when anything that was acknowledged is not so. Needs a build.
 */
import { parseArgs } from 'node:util';
import { ARGUMENTS } from '../../scripts/command.ts';
import { runHistory } from './run.ts';

const { values } = parseArgs({
  args: [...ARGUMENTS],
  options: {
    seconds: { type: 'string', default: '600' },
    seed: { type: 'string', default: String(Date.now() % 100_000) },
    clients: { type: 'string', default: '8' },
  },
});

const seed = Number(values.seed);
const startedAt = performance.now();
const report = await runHistory({
  seed,
  durationMs: Number(values.seconds) * 1000,
  clients: Number(values.clients),
  onHarm: what => console.log(`${((performance.now() - startedAt) / 1000).toFixed(1)} s: ${what}`),
});
console.log(JSON.stringify({ seed, ...report }, null, 2));
process.exitCode = report.violations.length === 0 ? 0 : 1;
