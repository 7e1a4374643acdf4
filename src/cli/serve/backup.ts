import type { Command } from 'commander';
import type { Config } from '../../config/config.ts';
import { CliError } from '../shared/exit.ts';
import type { Context } from '../shared/io.ts';
import { addConfigFlags } from './config-flags.ts';
import { loadConfigOrExplain } from './serve.ts';

export function register(program: Command, context: Context): void {
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
