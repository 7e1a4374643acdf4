import { existsSync } from 'node:fs';
import type { Command } from 'commander';
import type { Config } from '../../config/config.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { addConfigFlags } from './config-flags.ts';
import { loadConfigOrExplain } from './serve.ts';

/** Adds the command `rookery backup`, which copies a data directory while the service runs. */
export function registerBackup(program: Command, context: Context): void {
  const backup = program
    .command('backup <target>')
    .summary('copy the data directory while the service runs')
    .description(
      'Copies the database, node-id, the key of secrets and uploaded packages of a data directory. The service may run.\n' +
        '<target> is a new directory, or a new file that ends in .tar.gz. Run it as the user of the service or as root.',
    )
    .option('--without-key', 'leave out the key of secrets')
    .action((target: string, options) => backUpDataDir(context, target, options));
  addConfigFlags(backup);
}

type Options = Readonly<Record<string, unknown>>;

async function backUpDataDir({ io, version }: Context, target: string, options: Options): Promise<void> {
  const config = await loadConfigOrExplain(io, options);
  if (config.storage.url !== null) throw new CliError(ofPostgres(config));
  const [{ backUp }, { sizeText }] = await Promise.all([
    import('../../data-dir/backup.ts'),
    import('../code/upload.ts'),
  ]);
  const made = await backUp({
    ...{ dataDir: config.dataDir, target, version },
    hasKey: options.withoutKey !== true,
  }).catch(explain);
  const say = (line: string) => io.out.write(`${line}\n`);
  say(`backed up ${config.dataDir} to ${target}: ${made.files} files, ${sizeText(made.bytes)}`);
  if (made.hasKey) say('The key of secrets is in the backup: every reader of the backup can read the secrets.');
  else if (made.secrets > 0) {
    say('The key of its secrets is not in the backup. Keep it: a service does not start without it.');
  }
  say(
    'Not in the backup: the settings and the files that they name, code on mounts of this host, logs, memory of agents.',
  );
}

function ofPostgres({ dataDir }: Config): string {
  return (
    'The records are in PostgreSQL, which this command does not copy. Back up three things:\n' +
    '  the database: pg_dump --format=custom --file=rookery.dump "$(cat FILE)", where FILE is what storage.urlFile names\n' +
    `  ${dataDir}/node-id of each replica, and ${dataDir}/packages unless jobs.store keeps packages\n` +
    '  the key that secrets.keyFile or secrets.keyCommand gives, and the object store of jobs.store'
  );
}

function explain(error: unknown): never {
  if ((error as Error).name === 'ServiceError') throw new CliError((error as Error).message);
  throw error;
}

/** Adds the command `rookery restore`, which makes a data directory from a backup. */
export function registerRestore(program: Command, context: Context): void {
  const command = program
    .command('restore <backup>')
    .summary('fill an empty data directory with a backup')
    .description(
      'Checks every file of a backup that "rookery backup" made, and copies them into an empty data directory. Refuses a directory on which a\n' +
        'service runs, and one that is not empty. Sandboxes of the first service, if they still run, stay with its data directory.',
    )
    .action((backup: string, options) => restoreDataDir(context.io, backup, options));
  addConfigFlags(command);
}

async function restoreDataDir(io: Io, backup: string, options: Readonly<Record<string, unknown>>): Promise<void> {
  const config = await loadConfigOrExplain(io, options);
  if (config.storage.url !== null) {
    throw new CliError('The records are in PostgreSQL: restore them with pg_restore, and copy node-id back.');
  }
  const { restore } = await import('../../data-dir/restore.ts');
  try {
    const { createdAt, files, version } = await restore(backup, config.dataDir);
    io.out.write(
      `restored ${files.length} files of ${createdAt} (Rookery ${version}) into ${config.dataDir}\n` +
        'Start the service. Agents on this machine begin anew: one with a restart policy starts again, any other is FAILED until\n' +
        '"rookery agent restart". The service adopts pods of Kubernetes that still run.\n',
    );
  } catch (error) {
    if ((error as Error).name === 'ServiceError') throw new CliError((error as Error).message);
    throw error;
  }
}

/** Adds the command `rookery recover`, which reports and repairs a damaged data directory. */
export function registerRecover(program: Command, context: Context): void {
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
