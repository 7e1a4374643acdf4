import { existsSync } from 'node:fs';
import type { Command } from 'commander';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { addConfigFlags } from './config-flags.ts';
import { loadConfigOrExplain } from './serve.ts';

export function register(program: Command, context: Context): void {
  const command = program
    .command('recover')
    .summary('repair a data directory from which files are missing')
    .description(
      'Says what is missing in the data directory of a stopped service, what that means for live agents, and what can be done.\n' +
        'It changes nothing without --apply.',
    )
    .option('--apply', 'do it')
    .action(async options => {
      context.exitCode = await recoverDataDir(context.io, options);
    });
  addConfigFlags(command);
}

/** Recovers a data directory. Returns success when a service may start afterwards. */
async function recoverDataDir(io: Io, options: Readonly<Record<string, unknown>>): Promise<number> {
  const { dataDir } = await loadConfigOrExplain(io, options);
  // Taking the directory would make it.
  if (!existsSync(dataDir)) throw usageError(`The data directory ${dataDir} does not exist. Name it with --data-dir.`);
  const { recover } = await import('../../storage/recovery.ts');
  const say = (line: string) => io.out.write(`${line}\n`);
  let code: number = EXIT.ok;
  try {
    await recover(dataDir, async ({ findings, steps, unknownSandboxes }) => {
      for (const finding of findings) say(finding);
      if (unknownSandboxes.length > 0) {
        say(`Sandboxes that the database does not know, which the next service ends: ${unknownSandboxes.join(', ')}`);
      }
      if (steps.length === 0) {
        say(findings.length === 0 ? `Nothing is missing in ${dataDir}.` : 'Nothing can be done about it here.');
        if (findings.length > 0) code = EXIT.failure;
      }
      for (const step of steps) {
        say(`${options.apply === true ? 'Doing' : 'With --apply'}: ${step.text}`);
        if (options.apply === true) await step.apply();
        else code = EXIT.failure;
      }
    });
  } catch (error) {
    if ((error as Error).name === 'ServiceError') throw new CliError((error as Error).message);
    throw error;
  }
  return code;
}
