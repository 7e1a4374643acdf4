import type { Command } from 'commander';
import { contextInForce, readContexts, type Server, serverOf, writeContexts } from '../shared/contexts.ts';
import { usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { printFields, printJson, printTable } from '../shared/print.ts';

const NAME = 'the name of a context';

/** Adds the command `rookery context`, which selects, shows and removes stored servers. */
export function register(program: Command, context: Context): void {
  const { io } = context;
  const noun = program
    .command('context')
    .summary('choose among the servers that were logged in to')
    .description(
      'Servers that "rookery login" has kept. One is the current one; --context and ROOKERY_CONTEXT name another. Flags and variables for single ' +
        'things (--address, ROOKERY_TOKEN) count more, and what a context knows goes to its own addresses only.',
    );
  noun
    .command('list')
    .alias('ls')
    .summary('list contexts')
    .description('Lists the contexts; a * is before the current one.')
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print names only')
    .action(async options => listContexts(io, options));
  noun
    .command('use')
    .summary('make a context the current one')
    .description('Makes a context the current one; with --none there is none, and commands speak to this machine.')
    .argument('[name]', NAME)
    .option('--none', 'no context')
    .action(async (name, options) => useContext(io, name, options));
  noun
    .command('show')
    .summary('show a context')
    .description('Shows the context that counts, or the named one. Tokens are not shown.')
    .argument('[name]', NAME)
    .option('--json', 'print JSON')
    .action(async (name, options) => showContext(io, name, options));
  noun
    .command('remove')
    .alias('rm')
    .summary('forget contexts')
    .description('Forgets contexts and their tokens. The servers are not told.')
    .argument('<names...>', 'the contexts')
    .action(async names => removeContexts(io, names));
}

/** Returns a context without its token, for output. */
function shown(name: string, { token, ...server }: Server, current: string | null) {
  return { name, is_current: name === current, ...server, has_token: token !== undefined };
}

async function listContexts(io: Io, options: { readonly json?: boolean; readonly quiet?: boolean }): Promise<void> {
  const { current, servers } = await readContexts(io.environment);
  const rows = Object.entries(servers).map(([name, server]) => shown(name, server, current));
  if (options.json === true) printJson(io, rows);
  else if (options.quiet === true) for (const { name } of rows) io.out.write(`${name}\n`);
  else if (rows.length === 0) io.err.write('There is no context yet. "rookery login URL" makes one.\n');
  else printTable(io, COLUMNS, rows);
}

type Row = ReturnType<typeof shown>;

const COLUMNS = [
  { title: ' ', text: (row: Row) => (row.is_current ? '*' : '') },
  { title: 'NAME', text: ({ name }: Row) => name },
  { title: 'ADDRESS', text: ({ address }: Row) => address, isFlexible: true },
  { title: 'TENANT', text: ({ tenant }: Row) => tenant ?? '-' },
  { title: 'TOKEN', text: (row: Row) => (row.has_token ? 'kept' : '-') },
];

async function useContext(io: Io, name: string | undefined, options: { readonly none?: boolean }): Promise<void> {
  if ((name === undefined) !== (options.none === true)) throw usageError('Give the name of a context, or --none.');
  const contexts = await readContexts(io.environment);
  if (name !== undefined) serverOf(contexts, name);
  await writeContexts(io.environment, { ...contexts, current: name ?? null });
}

async function showContext(io: Io, given: string | undefined, options: { readonly json?: boolean }): Promise<void> {
  const { current } = await readContexts(io.environment);
  const found = await contextInForce(given, io.environment);
  if (found === null) throw usageError('There is no current context. "rookery login URL" makes one.');
  const row = shown(found.name, found.server, current);
  if (options.json === true) {
    printJson(io, row);
    return;
  }
  printFields(io, [
    ['name', row.name],
    ['current', row.is_current ? 'yes' : 'no'],
    ['frontend', row.address],
    ['meta_service', row.metaAddress],
    ['tenant', row.tenant],
    ['CA file', row.caFile],
    ['token', row.has_token ? 'kept' : 'none'],
  ]);
}

async function removeContexts(io: Io, names: readonly string[]): Promise<void> {
  const contexts = await readContexts(io.environment);
  for (const name of names) serverOf(contexts, name);
  const { current } = contexts;
  const servers = Object.fromEntries(Object.entries(contexts.servers).filter(([name]) => !names.includes(name)));
  await writeContexts(io.environment, {
    current: current !== null && names.includes(current) ? null : current,
    servers,
  });
}
