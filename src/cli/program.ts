import { Command, CommanderError } from 'commander';
import { CliError, EXIT, usageError } from './exit.ts';
import type { Context, Io } from './io.ts';

/** A noun's file: it describes its commands and imports what they need only when one of them runs. */
interface Noun {
  register(program: Command, context: Context): void;
}

/** Every noun, in the order of the help. A new noun is a file with `register`, and a line here. */
const NOUNS: Readonly<Record<string, () => Promise<Noun>>> = {
  serve: () => import('./serve.ts'),
  agent: () => import('./agent.ts'),
  function: () => import('./function.ts'),
  pool: () => import('./pool.ts'),
  job: () => import('./job.ts'),
  secret: () => import('./secret.ts'),
  logs: () => import('./logs.ts'),
  wait: () => import('./wait.ts'),
  top: () => import('./top.ts'),
  open: () => import('./open.ts'),
  deploy: () => import('./deploy.ts'),
  diff: () => import('./deploy-diff.ts'),
  init: () => import('./init.ts'),
  cluster: () => import('./cluster.ts'),
  events: () => import('./events.ts'),
  dashboard: () => import('./dashboard.ts'),
  login: () => import('./login.ts'),
  logout: () => import('./logout.ts'),
  context: () => import('./context.ts'),
  token: () => import('./token.ts'),
  config: () => import('./config.ts'),
  doctor: () => import('./doctor.ts'),
  recover: () => import('./recover.ts'),
  version: () => import('./version.ts'),
  upgrade: () => import('./upgrade.ts'),
  completion: () => import('./completion.ts'),
};

/** Runs one command and answers its exit code. Never throws. */
export async function run(args: readonly string[], io: Io, version: string): Promise<number> {
  const context: Context = { io, version, exitCode: EXIT.ok };
  try {
    const program = await createProgram(nounsFor(args), context);
    if (args[0] === 'help') {
      commandAt(program, args.slice(1)).outputHelp();
      return EXIT.ok;
    }
    await program.parseAsync(args, { from: 'user' });
    return context.exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (error instanceof CliError) {
      io.err.write(`${error.message}\n`);
      return error.exitCode;
    }
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    io.err.write(`This is a fault of rookery itself. Please report it with these lines:\n${text}\n`);
    return EXIT.failure;
  }
}

/** `help agent create`: the command that the words lead to. */
function commandAt(program: Command, words: readonly string[]): Command {
  let command = program;
  for (const word of words) {
    const found = command.commands.find(each => each.name() === word || each.aliases().includes(word));
    if (found === undefined) {
      const path = words.slice(0, words.indexOf(word) + 1).join(' ');
      throw usageError(`There is no command "${path}". "rookery help" lists those that there are.`);
    }
    command = found;
  }
  return command;
}

/** The whole program as the documentation and shell completion see it. */
export function createWholeProgram(context: Context): Promise<Command> {
  return createProgram(Object.keys(NOUNS), context);
}

/** Only the noun that is asked for is loaded; help and mistakes need all of them. */
function nounsFor(args: readonly string[]): readonly string[] {
  const first = args[0] ?? '';
  return Object.hasOwn(NOUNS, first) && first !== 'completion' ? [first] : Object.keys(NOUNS);
}

async function createProgram(nouns: readonly string[], context: Context): Promise<Command> {
  const { io } = context;
  const program = new Command('rookery')
    .description('A serverless cluster that you run yourself: resident agents, functions and jobs.')
    .version(context.version, '-V, --version', 'print the version')
    .helpCommand(true)
    // Options belong to the command that they follow: `agent exec hello ls -l` leaves -l to ls.
    .enablePositionalOptions()
    .exitOverride()
    .showHelpAfterError('(add --help for the options)')
    // Narrower than usual, so that descriptions behind long names of commands are wrapped too.
    .configureHelp({ minWidthToWrap: 20 })
    .configureOutput({
      writeOut: text => io.out.write(text),
      writeErr: text => io.err.write(text),
      getOutHelpWidth: () => io.out.columns,
      getErrHelpWidth: () => io.err.columns,
      getOutHasColors: () => io.out.isTerminal,
      getErrHasColors: () => io.err.isTerminal,
    })
    .addHelpText(
      'after',
      '\nStart here:\n  rookery serve                              start the service on this machine\n' +
        '  rookery agent create hello --code ./examples/hello --handler handler.handle\n' +
        '  rookery agent invoke hello \'{"name": "you"}\'\n',
    );
  for (const noun of await Promise.all(nouns.map(name => NOUNS[name]?.()))) noun?.register(program, context);
  return program;
}
