/**
 * Command `npm run fuzz -- <fuzzer> [--seconds 600] [--seed 1] [--iterations N]`. A fuzzer makes hostile
 * input from a seed and sends it to one decoder of the service. The exit code is 1 if the decoder crashed,
 * hung or leaked memory.
 */
import { parseArgs } from 'node:util';
import { ARGUMENTS } from '../../scripts/command.ts';
import type { Fuzzer } from './fuzzer.ts';

/** Fuzzers by name. Each is loaded on use, because it imports the parts that it attacks. */
const FUZZERS: Readonly<Record<string, () => Promise<Fuzzer>>> = {
  e2b: async () => (await import('./e2b.ts')).fuzzE2b,
  envd: async () => (await import('./envd.ts')).fuzzEnvd,
  frames: async () => (await import('./frames.ts')).fuzzFrames,
  'http-bridge': async () => (await import('./http-bridge.ts')).fuzzHttpBridge,
  interpreter: async () => (await import('./interpreter.ts')).fuzzInterpreter,
  passthrough: async () => (await import('./passthrough.ts')).fuzzPassthrough,
};

const { values, positionals } = parseArgs({
  args: [...ARGUMENTS],
  allowPositionals: true,
  options: {
    seconds: { type: 'string', default: '600' },
    seed: { type: 'string', default: '1' },
    iterations: { type: 'string', default: 'Infinity' },
  },
});
const [name = ''] = positionals;
const load = Object.hasOwn(FUZZERS, name) ? FUZZERS[name] : undefined;
if (load === undefined) {
  console.error(`no fuzzer "${name}"; there are: ${Object.keys(FUZZERS).join(', ')}`);
  process.exit(2);
}

const startMs = performance.now();
const fuzz = await load();
const report = await fuzz({
  seed: Number(values.seed),
  maxIterations: Number(values.iterations),
  maxSeconds: Number(values.seconds),
});
const seconds = Math.round((performance.now() - startMs) / 1000);
const { heapUsed, rss } = process.memoryUsage();
for (const fault of report.faults) console.error(fault);
console.log(
  JSON.stringify({
    fuzzer: name,
    seed: Number(values.seed),
    seconds,
    iterations: report.iterations,
    ...report.counts,
    heapMb: Math.round(heapUsed / 1024 / 1024),
    rssMb: Math.round(rss / 1024 / 1024),
    faults: report.faults.length,
  }),
);
process.exit(report.faults.length === 0 ? 0 : 1);
