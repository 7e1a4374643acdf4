/**
 * Command `npm run walk [-- name…]`. Its user works on another machine, which is a network namespace with
 * its own files. The walk makes, deploys, calls, changes, inspects and deletes every kind of program.
 * Prints the commands, their seconds and their output. Needs root, a build, Go, npm, and an index of Python
 * packages.
 */
import { ARGUMENTS } from '../../scripts/command.ts';
import { Laptop } from './laptop.ts';
import { PROGRAMS } from './programs.ts';
import { login, type Step, serveFor, walk } from './steps.ts';

const wanted = PROGRAMS.filter(({ name }) => ARGUMENTS.length === 0 || ARGUMENTS.includes(name));
const steps: Step[] = [];

function show(step: Step): void {
  steps.push(step);
  const lines = step.out.trimEnd().split('\n');
  const shown = lines.length > 12 ? [...lines.slice(0, 3), `… ${lines.length - 6} lines …`, ...lines.slice(-3)] : lines;
  console.log(`$ ${step.command}\n# ${step.seconds.toFixed(1)} s\n${shown.join('\n')}\n`);
}

const laptop = Laptop.make();
try {
  const served = await serveFor(laptop);
  try {
    show(await login(laptop, served));
    for (const program of wanted) {
      console.log(`## ${program.name}\n`);
      for await (const step of walk(laptop, served.server, program)) show(step);
    }
  } finally {
    await served.remove();
  }
} finally {
  laptop.remove();
}
console.log('| program | command | seconds |\n|---|---|---|');
for (const { program, command, seconds } of steps)
  console.log(`| ${program} | \`${command}\` | ${seconds.toFixed(1)} |`);
