import type { Command } from 'commander';
import { isNewer, newestVersion } from '../function/newest-version.ts';
import { EXIT, usageError } from '../shared/exit.ts';
import type { Context } from '../shared/io.ts';
import { printJson, withSpinner } from '../shared/print.ts';
import { addConfigFlags } from './config-flags.ts';
import { loadConfigOrExplain } from './serve.ts';

interface Options extends Readonly<Record<string, unknown>> {
  readonly check?: boolean;
  readonly registry?: string;
  readonly json?: boolean;
}

/** Adds the command `rookery upgrade`, which reports a newer version and its migration. */
export function register(program: Command, context: Context): void {
  const command = program
    .command('upgrade')
    .summary('say whether there is a newer version')
    .description(
      'Asks the registry that npm is configured with for a newer version, and says what it would do to the database of a service on this machine.\n' +
        `It installs and changes nothing. The exit code is ${EXIT.ok} when there is none, ${EXIT.newer} when there is one, ${EXIT.unreachable} when the registry cannot be asked.`,
    )
    .option('--check', 'required')
    .option('--registry <url>', 'the registry; default: that of npm')
    .option('--json', 'print JSON')
    .action(async options => {
      context.exitCode = await check(context, options);
    });
  addConfigFlags(command);
}

async function check({ io, version }: Context, options: Options): Promise<number> {
  if (options.check !== true) {
    throw usageError('rookery upgrade installs nothing: add --check, and upgrade with what it was installed with.');
  }
  const { dataDir, storage } = await loadConfigOrExplain(io, options);
  const newest = await withSpinner(io, 'asking the registry', () => newestVersion(io, options.registry));
  const { appliedSchema, OWN_SCHEMA } = await import('../../storage/applied-schema.ts');
  const hasNewer = isNewer(newest.version, version);
  const next = hasNewer ? newest.version : version;
  const nextSchema = hasNewer ? newest.schema : OWN_SCHEMA;
  const place = storage.url === null ? `the database in ${dataDir}` : 'the database of storage.url';
  let schema: string | null = null;
  let problem: string | null = null;
  try {
    // A PostgreSQL has the schema of this version. A query could block, so none is sent.
    schema = storage.url === null ? appliedSchema(dataDir) : OWN_SCHEMA;
  } catch (error) {
    problem = (error as Error).message;
  }
  if (options.json === true) {
    printJson(io, { version, newest: newest.version, newer: hasNewer, schema, nextSchema, problem });
  } else {
    io.out.write(hasNewer ? `${newest.version} is there; this is ${version}\n` : `nothing is newer than ${version}\n`);
    io.out.write(`${problem ?? whatHappens({ place, schema, next, nextSchema })}\n`);
  }
  return hasNewer ? EXIT.newer : EXIT.ok;
}

function whatHappens(of: {
  readonly place: string;
  readonly schema: string | null;
  readonly next: string;
  readonly nextSchema: string | null;
}): string {
  const { place, schema, next, nextSchema } = of;
  if (schema === null) return `there is no database yet: ${place}`;
  if (nextSchema === null)
    return `${place} is at ${schema}; ${next} does not say what it brings it to: back it up before`;
  if (nextSchema === schema) return `${place} is at ${schema}, and ${next} leaves it there`;
  if (nextSchema < schema)
    return `${place} is at ${schema}, which is newer than ${next} knows: it will not start with it`;
  return `${place} is at ${schema}, and ${next} brings it to ${nextSchema} at its first start: back it up before, an older version will not start with it afterwards`;
}
