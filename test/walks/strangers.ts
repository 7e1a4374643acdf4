import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { whyNoDocker } from '../parts/docker.ts';
import { imageSteps, walkTheImage } from './image-walk.ts';
import { debianService, debianUser, freshClone, type MachineWalk, npmPackage, walkOnMachine } from './machine-walks.ts';
import { faultsOf, type Step } from './shell.ts';
import { Transcript } from './transcript.ts';

interface Stranger {
  readonly title: string;
  /** Returns the reason why the walk cannot run on this machine, or null. */
  readonly whyNot: () => string | null;
  readonly steps: () => readonly Step[];
  readonly walk: (steps: readonly Step[], seen: Transcript) => Promise<void>;
}

interface Row {
  readonly title: string;
  readonly answerS: number | null;
  readonly endS: number | null;
  readonly lines: number | null;
  readonly result: string;
}

const STRANGERS: Readonly<Record<string, Stranger>> = {
  a: onMachine('a: a fresh clone, an ordinary user', freshClone()),
  'b-service': onMachine('b: the Debian package, root and its service', debianService()),
  'b-user': onMachine('b: the Debian package, an ordinary user', debianUser()),
  c: { title: 'c: the image', whyNot: whyNoDocker, steps: imageSteps, walk: walkTheImage },
  d: onMachine('d: the npm package', npmPackage()),
};

/** Runs walks one after the other, all when `names` is empty, and prints the table. Returns the exit code. */
export async function walkAll(
  names: readonly string[],
  keep: string | null,
  leftovers: () => readonly string[],
): Promise<number> {
  const unknown = names.filter(name => !Object.hasOwn(STRANGERS, name));
  if (unknown.length > 0) {
    console.error(`walks: there is no ${unknown.join(', ')}; there are ${Object.keys(STRANGERS).join(', ')}`);
    return 2;
  }
  const rows: Row[] = [];
  for (const [name, stranger] of Object.entries(STRANGERS)) {
    if (names.length > 0 && !names.includes(name)) continue;
    rows.push(await walk(stranger, keep === null ? null : join(keep, `${name}.txt`), leftovers));
  }
  console.log('\n| Walk | First answer, s | End, s | Lines | Result |\n|---|---:|---:|---:|---|');
  for (const { title, answerS, endS, lines, result } of rows)
    console.log(`| ${[title, shown(answerS), shown(endS), lines ?? '–', result].join(' | ')} |`);
  return rows.every(({ result }) => result === 'passed') ? 0 : 1;
}

async function walk(stranger: Stranger, file: string | null, leftovers: () => readonly string[]): Promise<Row> {
  const { title, whyNot, steps: make, walk } = stranger;
  console.log(`\n## ${title}\n`);
  const why = whyNot();
  if (why !== null) return { title, answerS: null, endS: null, lines: null, result: `not walked: ${why}` };
  const seen = new Transcript(file);
  const steps = make();
  const faults: string[] = [];
  try {
    await walk(steps, seen);
  } catch (error) {
    faults.push(error instanceof Error ? error.message : String(error));
  }
  seen.close();
  faults.push(...faultsOf(steps, seen), ...seen.left, ...leftovers().map(name => `left: ${name}`));
  if (seen.firstAnswerS === null) faults.push('no answer came');
  for (const fault of faults) console.log(`FAULT  ${fault}`);
  const result = faults.length === 0 ? 'passed' : `failed: ${faults[0]?.split('\n')[0]}`;
  return { title, answerS: seen.firstAnswerS, endS: seen.endS, lines: seen.lineCount, result };
}

function onMachine(title: string, machineWalk: MachineWalk): Stranger {
  return {
    title,
    whyNot: () => whyNoMachine(),
    steps: () => machineWalk.steps,
    walk: (_, seen) => walkOnMachine(machineWalk, seen),
  };
}

function whyNoMachine(): string | null {
  if (process.getuid?.() !== 0) return 'a machine of its own can only be made by root';
  const missing = ['debootstrap', 'slirp4netns', 'unshare', 'git'].filter(
    program => spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' }).status !== 0,
  );
  return missing.length === 0
    ? null
    : `${missing.join(', ')} not installed (apt-get install debootstrap slirp4netns git)`;
}

function shown(seconds: number | null): string {
  return seconds === null ? '–' : seconds.toFixed(1);
}
