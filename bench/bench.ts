/**
 * Measures Rookery against the floor and prints a table: `npm run bench`. bench/README.md lists the options.
 * It builds first. The table and the raw numbers are written below the directory for temporary files.
 * `--record` also writes bench/RESULTS.md.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, release, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ARGUMENTS, ROOT, run } from '../scripts/command.ts';
import { findInterpreters } from '../scripts/pythons.ts';
import { Bed, type BenchRow, NotHere } from './bed.ts';
import { generatorName } from './load.ts';
import { type BenchMachine, markdown, type Section } from './report.ts';
import { callHistory } from './rows/call-history.ts';
import { cluster } from './rows/cluster.ts';
import { createNodeToResult, createRate, createToResult } from './rows/create.ts';
import { createStages } from './rows/create-stages.ts';
import { dashboard } from './rows/dashboard.ts';
import { docker } from './rows/docker.ts';
import { durable } from './rows/durable.ts';
import { e2b } from './rows/e2b.ts';
import { endedAgents } from './rows/ended-agents.ts';
import { files } from './rows/files.ts';
import { floorAlone } from './rows/floor.ts';
import { functionStreams } from './rows/function-streams.ts';
import {
  functionColdStart,
  functionLambda,
  functionOverload,
  functionThroughput,
  functionWarm,
} from './rows/functions.ts';
import { idleCpu, idleMemory } from './rows/idle.ts';
import { jobs } from './rows/jobs.ts';
import { kubernetes } from './rows/kubernetes.ts';
import { overload } from './rows/overload.ts';
import { registry } from './rows/registry.ts';
import { restart } from './rows/restart.ts';
import { runtimes } from './rows/runtimes.ts';
import { supervisor } from './rows/supervisor.ts';
import { throughput } from './rows/throughput.ts';
import { warmInvoke } from './rows/warm-invoke.ts';

/** Rows in the order of the design's table. The row `floor` is measured only when `--only` names it. */
const ROWS: readonly BenchRow[] = [
  ...[
    warmInvoke,
    throughput,
    callHistory,
    createToResult,
    createNodeToResult,
    createStages,
    createRate,
    restart,
    endedAgents,
    durable,
    idleMemory,
    idleCpu,
    overload,
    jobs,
    registry,
    runtimes,
  ],
  ...[docker, supervisor, kubernetes, files, e2b, cluster, dashboard],
  ...[functionWarm, functionLambda, functionThroughput, functionColdStart, functionOverload, functionStreams],
];
const ASKED_ONLY: readonly BenchRow[] = [floorAlone];

const { values } = parseArgs({
  args: [...ARGUMENTS],
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    rounds: { type: 'string', default: '' },
    name: { type: 'string', default: '' },
    python: { type: 'string', default: '' },
    profile: { type: 'string', default: '' },
    record: { type: 'boolean', default: false },
    'no-build': { type: 'boolean', default: false },
  },
});

function chosenRows(): readonly BenchRow[] {
  if (values.only === '') return ROWS;
  const all = [...ROWS, ...ASKED_ONLY];
  return values.only.split(',').map(name => {
    const found = all.find(row => row.name === name);
    if (found === undefined) throw new Error(`no row "${name}"; there are ${all.map(row => row.name).join(', ')}`);
    return found;
  });
}

async function chosenPython() {
  const found = await findInterpreters();
  const python = found.find(({ version }) => version === (values.python || '3.11')) ?? found.at(-1);
  if (python === undefined) throw new Error('the bench needs Python 3.6 or newer');
  return python;
}

async function measureRow(row: BenchRow, bed: Bed): Promise<Section> {
  try {
    return { row: row.name, measurements: await row.measure(bed) };
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    if (!(error instanceof NotHere)) process.exitCode = 1;
    return { row: row.name, measurements: [], problem };
  }
}

const rows = chosenRows();
const python = await chosenPython();
const rounds = Number(values.rounds || (values.quick ? 2 : 5));
if (!Number.isInteger(rounds) || rounds < 1)
  throw new Error(`--rounds must be a positive integer, not ${values.rounds}`);
if (!values['no-build']) {
  const build = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts'], { capture: true });
  if (build.code !== 0) throw new Error(`the build failed:\n${build.output}`);
}

const startedAt = new Date();
const loadBefore = loadavg()[0] ?? 0;
const bed = new Bed({ python, isQuick: values.quick, rounds, profileDir: values.profile });
const sections: Section[] = [];
try {
  for (const row of rows) {
    console.error(`measuring ${row.name} …`);
    sections.push(await measureRow(row, bed));
  }
} finally {
  await bed.close();
}

const machine: BenchMachine = {
  cpu: cpus()[0]?.model.trim() ?? 'unknown processor',
  cores: cpus().length,
  memoryGb: Math.round(totalmem() / 2 ** 30),
  kernel: release(),
  node: process.versions.node,
  python: python.version,
  generator: await generatorName(),
  loadBefore,
};
const table = markdown(sections, machine, startedAt);
const name = values.name || (values.quick ? 'quick' : 'full');
const directory = join(tmpdir(), 'rookery-bench');
const file = join(directory, `${startedAt.toISOString().slice(0, 10)}-${name}`);
mkdirSync(directory, { recursive: true });
writeFileSync(`${file}.md`, table);
if (values.record) writeFileSync(join(ROOT, 'bench/RESULTS.md'), table);
writeFileSync(`${file}.json`, `${JSON.stringify({ startedAt, machine, rounds, sections, raw: bed.raw }, null, 1)}\n`);
console.log(`\n${table}\n${file}.md`);
