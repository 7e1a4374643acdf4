/**
 * `node --import tsx test/jobs/crash-run.ts [jobs] [kills]`: the full crash test, which is too slow for each
 * run of the suite.
 */
import { crash } from './crash.ts';

const [jobs = '200', kills = '20'] = process.argv.slice(2);
const startedAt = Date.now();
const problems = await crash({ jobs: Number(jobs), kills: Number(kills) });
for (const problem of problems) console.error(problem);
console.log(
  `${jobs} jobs, ${kills} kills, ${problems.length} problems, ${Math.round((Date.now() - startedAt) / 1000)} s`,
);
process.exitCode = problems.length === 0 ? 0 : 1;
