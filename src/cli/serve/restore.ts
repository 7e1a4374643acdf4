import type { Command } from 'commander';
import { CliError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { addConfigFlags } from './config-flags.ts';
import { loadConfigOrExplain } from './serve.ts';

export function register(program: Command, context: Context): void {
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
