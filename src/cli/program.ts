import { Command, CommanderError, InvalidArgumentError } from 'commander';
import { nearest } from '../core/unknown-names.ts';
import { CliError, EXIT, usageError } from './shared/exit.ts';
import type { Context, Io } from './shared/io.ts';
import { printable, printError } from './shared/print.ts';

/** The module of a noun. It describes its commands and imports their code only when one of them runs. */
interface Noun {
  register(program: Command, context: Context): void;
}

/** Every noun, in the order of the help. A new noun is a file with `register`, and a line here. */
const NOUNS: Readonly<Record<string, () => Promise<Noun>>> = {
  serve: () => import('./serve/serve.ts'),
  stop: () => import('./serve/stop.ts'),
  agent: () => import('./agent/agent.ts'),
  sandbox: () => import('./sandbox/sandbox.ts'),
  run: async () => ({ register: (await import('./sandbox/sandbox.ts')).registerRun }),
  function: () => import('./function/function.ts'),
  pool: () => import('./pool/pool.ts'),
  job: () => import('./job/job.ts'),
  secret: () => import('./secret/secret.ts'),
  mcp: () => import('./mcp/mcp.ts'),
  logs: () => import('./shared/logs.ts'),
  wait: () => import('./wait/wait.ts'),
  top: () => import('./top/top.ts'),
  open: async () => ({ register: (await import('./serve/open.ts')).registerOpen }),
  deploy: async () => ({ register: (await import('./deploy/deploy.ts')).registerDeploy }),
  diff: async () => ({ register: (await import('./deploy/deploy.ts')).registerDiff }),
  init: () => import('./deploy/init.ts'),
  cluster: () => import('./serve/cluster.ts'),
  explain: () => import('./explain/explain.ts'),
  events: () => import('./events.ts'),
  calls: async () => ({ register: (await import('./call/call.ts')).registerCalls }),
  call: async () => ({ register: (await import('./call/call.ts')).registerCall }),
  dashboard: async () => ({ register: (await import('./serve/open.ts')).registerDashboard }),
  login: async () => ({ register: (await import('./login/login.ts')).registerLogin }),
  logout: async () => ({ register: (await import('./login/login.ts')).registerLogout }),
  context: () => import('./login/context.ts'),
  token: () => import('./login/token.ts'),
  config: () => import('./serve/config.ts'),
  doctor: () => import('./serve/doctor.ts'),
  backup: async () => ({ register: (await import('./serve/data-dir.ts')).registerBackup }),
  restore: async () => ({ register: (await import('./serve/data-dir.ts')).registerRestore }),
  recover: async () => ({ register: (await import('./serve/data-dir.ts')).registerRecover }),
  version: () => import('./version.ts'),
  upgrade: () => import('./serve/upgrade.ts'),
  completion: () => import('./completion.ts'),
  'complete-names': () => import('./complete-names.ts'),
};

/** Commands that describe the whole program. */
const NOUNS_OF_ALL: ReadonlySet<string> = new Set(['completion']);

/** Runs one command and returns its exit code. Never throws. */
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
      printError(io, error.message);
      return error.exitCode;
    }
    if ((error as NodeJS.ErrnoException | null)?.syscall === 'uv_cwd') {
      printError(io, 'The working directory was removed. Change to one that exists, for example: cd ~');
      return EXIT.failure;
    }
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    printError(io, `This is a fault of rookery itself. Please report it with these lines:\n${text}`);
    return EXIT.failure;
  }
}

/** Removes suggestions that share little with the unknown word: commander suggests `pool` for `foo`. */
function withNearSuggestions(text: string): string {
  const given = /^error: unknown (?:command|option) '([^']*)'/.exec(text)?.[1];
  if (given === undefined) return text;
  return text.replace(/\n\(Did you mean (?:one of )?([^)]*)\?\)/, (line, names: string) =>
    nearest(given, names.split(', ')) === null ? '' : line,
  );
}

/** Returns the command that words name, for `help agent create`. */
function commandAt(program: Command, words: readonly string[]): Command {
  let command = program;
  for (const word of words) {
    const found = command.commands.find(each => each.name() === word || each.aliases().includes(word));
    if (found === undefined) {
      const path = words.slice(0, words.indexOf(word) + 1).join(' ');
      throw usageError(`There is no command "${path}". "rookery help" lists the commands.`);
    }
    command = found;
  }
  return command;
}

/** Returns the whole program, for the documentation and shell completion. */
export function createWholeProgram(context: Context): Promise<Command> {
  return createProgram(Object.keys(NOUNS), context);
}

/** Returns the nouns to load: only the named one. Help and mistakes need all of them. */
function nounsFor(args: readonly string[]): readonly string[] {
  const first = args[0] ?? '';
  return Object.hasOwn(NOUNS, first) && !NOUNS_OF_ALL.has(first) ? [first] : Object.keys(NOUNS);
}

async function createProgram(nouns: readonly string[], context: Context): Promise<Command> {
  const { io } = context;
  const program = new Command('rookery')
    .description('A serverless cluster that you run yourself: resident agents, functions and jobs.')
    .version(context.version, '-V, --version', 'print the version')
    .helpCommand(true)
    // Options belong to the command that they follow: `agent exec hello ls -l` passes -l to ls.
    .enablePositionalOptions()
    .exitOverride()
    .showHelpAfterError('(--help lists the commands and options)')
    // Less than commander's default, so that descriptions after long command names also wrap.
    .configureHelp({ minWidthToWrap: 20 })
    .configureOutput({
      writeOut: text => io.out.write(text),
      writeErr: text => io.err.write(text),
      outputError: (text, write) => write(printable(withNearSuggestions(text))),
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
  refuseEmptyValues(program);
  return program;
}

/** Options and arguments whose empty value means something, reaches user code, or has its own message. */
const MAY_BE_EMPTY = /^(--hpa|--status|--data|--env|--image|--label|--set|command|value|ports|source|target)$/;

/**
 * Refuses empty values, which an unset variable leaves (`--token "$TOKEN"`). Otherwise they would count as
 * not given, and `--code ''` would be the working directory.
 */
function refuseEmptyValues(command: Command): void {
  const checked = (value: string): string => {
    if (value === '') throw new InvalidArgumentError('It is empty: is a variable unset?');
    return value;
  };
  for (const option of command.options) {
    if (option.parseArg || option.variadic || !option.required || MAY_BE_EMPTY.test(option.long ?? '')) continue;
    option.argParser(checked);
  }
  for (const argument of command.registeredArguments) {
    if (argument.parseArg || MAY_BE_EMPTY.test(argument.name())) continue;
    if (argument.variadic) argument.argParser((value, all?: string[]) => [...(all ?? []), checked(value)]);
    else argument.argParser(checked);
  }
  for (const each of command.commands) refuseEmptyValues(each);
}
