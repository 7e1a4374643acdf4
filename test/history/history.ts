/**
 * Command `npm run history [-- --seconds 600] [--seed 1] [--clients 8] [--replicas 3] [--rolling] [--updates
 * 100]`. Runs a random history with kills, frozen parts, a full disk and few descriptors, or one of several
 * replicas over one PostgreSQL. The whole history is checked. The exit code is 1 when an acknowledged change
 * is missing. Needs a build.
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
    replicas: { type: 'string', default: '1' },
    rolling: { type: 'boolean', default: false },
    updates: { type: 'string', default: '0' },
  },
});

const seed = Number(values.seed);
const report = await runHistory({
  seed,
  durationMs: Number(values.seconds) * 1000,
  clients: Number(values.clients),
  replicas: Number(values.replicas),
  isRolling: values.rolling,
  measuredUpdates: Number(values.updates),
  onHarm: what => console.log(`${(performance.now() / 1000).toFixed(1)} s: ${what}`),
});
console.log(JSON.stringify({ seed, ...report }, null, 2));
process.exitCode = report.violations.length === 0 ? 0 : 1;
