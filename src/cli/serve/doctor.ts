import type { Command } from 'commander';
import type { Finding } from '../../doctor/checks.ts';
import { EXIT } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { coloured, printJson, withSpinner } from '../shared/print.ts';
import { addConfigFlags } from './config-flags.ts';
import { findRunningService, type RunningService, withDataDirOf } from './running-service.ts';
import { loadConfigOrExplain } from './serve.ts';

/** Adds the command `rookery doctor`, which checks whether the service can run on this machine. */
export function register(program: Command, context: Context): void {
  const command = program
    .command('doctor')
    .summary('say what works on this machine')
    .description(
      'Checks everything that the service needs on this machine, with the configuration of serve, and says how to get what is missing.\n' +
        'It changes nothing. Returns 1 if the service cannot work here.',
    )
    .option('--json', 'print JSON')
    .action(async options => {
      context.exitCode = await examine(context.io, options);
    });
  addConfigFlags(command);
}

async function examine(io: Io, options: Readonly<Record<string, unknown>>): Promise<number> {
  const given = await loadConfigOrExplain(io, options);
  const running = await findRunningService(io, given);
  const config = withDataDirOf(running, given, io);
  const { findAll } = await import('../../doctor/findings.ts');
  const found = await withSpinner(io, 'looking at this machine', () => findAll(config, io.environment, null));
  const findings = found.map(finding => (finding.name === 'frontend' ? withOwner(finding, running) : finding));
  const hasFailed = findings.some(finding => finding.status === 'fail');
  if (options.json === true) printJson(io, { ok: !hasFailed, findings });
  else print(io, findings);
  return hasFailed ? EXIT.failure : EXIT.ok;
}

/** Adds a note that identifies the answering service by its data directory. */
function withOwner(finding: Finding, running: RunningService | null): Finding {
  if (running === null) return finding;
  const dataDir = running.settings?.find(({ name }) => name === 'dataDir')?.value;
  const note =
    dataDir === undefined
      ? 'It does not show its settings to this user: it may be the service of another user.'
      : `Its data directory is ${String(dataDir)}.`;
  return { ...finding, notes: [...finding.notes, note] };
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
