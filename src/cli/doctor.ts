import type { Command } from 'commander';
import { addConfigFlags } from './config-flags.ts';
import type { Finding } from './doctor-checks.ts';
import { EXIT } from './exit.ts';
import type { Context, Io } from './io.ts';
import { coloured, printJson, withSpinner } from './print.ts';
import { loadConfigOrExplain } from './serve.ts';

export function register(program: Command, context: Context): void {
  const command = program
    .command('doctor')
    .summary('say what works on this machine')
    .description(
      'Tries everything that the service needs on this machine, with the configuration that serve would have, and says what is missing\n' +
        'and how to get it. It changes nothing. The exit code is 1 when the service cannot work here.',
    )
    .option('--json', 'print JSON')
    .action(async options => {
      context.exitCode = await examine(context.io, options);
    });
  addConfigFlags(command);
}

async function examine(io: Io, options: Readonly<Record<string, unknown>>): Promise<number> {
  const config = await loadConfigOrExplain(io, options);
  const { findAll } = await import('./doctor-findings.ts');
  const findings = await withSpinner(io, 'looking at this machine', () => findAll(config, io.environment, null));
  const hasFailed = findings.some(finding => finding.status === 'fail');
  if (options.json === true) printJson(io, { ok: !hasFailed, findings });
  else print(io, findings);
  return hasFailed ? EXIT.failure : EXIT.ok;
}

const MARKS = { ok: ['green', 'ok  '], warn: ['yellow', 'warn'], fail: ['red', 'FAIL'] } as const;

function print(io: Io, findings: readonly Finding[]): void {
  const width = Math.max(...findings.map(finding => finding.name.length));
  for (const { name, status, text, notes } of findings) {
    const [style, mark] = MARKS[status];
    io.out.write(`${coloured(io, io.out, style, mark)}  ${name.padEnd(width)}  ${text}\n`);
    for (const note of notes) io.out.write(`${' '.repeat(width + 8)}${note}\n`);
  }
}
