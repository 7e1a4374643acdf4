import type { Command } from 'commander';
import { HTTP_PROFILE_NAMES } from '../../core/http-profiles.ts';
import { SANDBOX_TYPES } from '../../core/sandbox-types.ts';
import { append, SECRET_OPTION } from '../serve/config-flags.ts';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';
import { oneOf } from '../shared/print.ts';
import { addServiceCommands } from './service.ts';

const NAME = 'hello, demo@hello or 0@demo@hello';
const FUNCTION = `its name (${NAME}), or a URN`;
const VERSION = `${FUNCTION}; with :<version>, else the latest`;

/** Adds the commands `rookery function …`. `write.ts`, `read.ts` and `reserve.ts` implement them. */
export function register(program: Command, context: Context): void {
  const noun = program
    .command('function')
    .summary('register, publish, call and look after functions')
    .description('Versioned functions: what agents and the function service are made from.');
  addRegister(noun, context);
  addUpdate(noun, context);
  addPublish(noun, context);
  addGet(noun, context);
  addVersions(noun, context);
  addList(noun, context);
  addDelete(noun, context);
  addReserve(noun, context);
  addServiceCommands(noun, context);
  // Client options are added last, so that the help begins with the command's own options.
  for (const command of noun.commands) addClientOptions(command);
}

function addRegister(noun: Command, { io }: Context): void {
  addFunctionFlags(noun.command('register'))
    .summary('register a function')
    .description(
      'Registers a function and prints the URN of its latest version. Everything that is wrong is reported at once.\n\n' +
        '  rookery function register hello --code ./hello --handler handler.handle\n' +
        '  rookery function register -f function.yaml',
    )
    .argument('[name]', `its name: ${NAME}`)
    .option('--kind <kind>', 'faas: scales with calls; agent: also for agents; yrlib, custom: stored only', 'agent')
    .option('--json', 'print the whole record')
    .action(async (name, options, command) => {
      const { registerFunction } = await import('./write.ts');
      await registerFunction(io, name, options, command.getOptionValueSource('kind') === 'default');
    });
}

function addUpdate(noun: Command, { io }: Context): void {
  addFunctionFlags(noun.command('update'))
    .summary('change the latest revision of a function')
    .description(
      'Changes what is given; everything else is kept, each variable of the environment too. A map or a list of a file replaces the old one ' +
        'whole. Published versions never change.',
    )
    .argument('<name>', FUNCTION)
    .option('--revision <id>', 'only if this is the latest revision; else whatever is the latest now')
    .option('--json', 'print the whole record')
    .action(async (name, options) => {
      const { updateFunction } = await import('./write.ts');
      await updateFunction(io, name, options);
    });
}

function addPublish(noun: Command, { io }: Context): void {
  noun
    .command('publish')
    .summary('publish the latest revision as a version')
    .description('Makes a version of the latest revision, which never changes, and prints its URN.')
    .argument('<name>', FUNCTION)
    .option('--as <version>', 'what the version is called; else a name is made from the time')
    .option('--description <text>', 'what is new in it')
    .option('--revision <id>', 'only if this is the latest revision; else whatever is the latest now')
    .option('--json', 'print the whole record')
    .action(async (name, options) => {
      const { publishFunction } = await import('./write.ts');
      await publishFunction(io, name, options);
    });
}

function addGet(noun: Command, { io }: Context): void {
  noun
    .command('get')
    .summary('show one version of a function')
    .description('Shows what a version of a function says.')
    .argument('<name>', VERSION)
    .option('--json', 'print the whole record')
    .action(async (name, options) => {
      const { getFunction } = await import('./read.ts');
      await getFunction(io, name, options);
    });
}

function addVersions(noun: Command, { io }: Context): void {
  noun
    .command('versions')
    .summary('list the versions of a function')
    .description('Lists the latest revision of a function and what was published of it, the newest change first.')
    .argument('<name>', FUNCTION)
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print URNs only')
    .action(async (name, options) => {
      const { listVersions } = await import('./read.ts');
      await listVersions(io, name, options);
    });
}

function addList(noun: Command, { io }: Context): void {
  noun
    .command('list')
    .alias('ls')
    .summary('list functions')
    .description('Lists all versions of all functions of the tenant, the newest change first.')
    .option('--name <part>', 'only those whose name has this in it')
    .option('--at <version>', 'only this version of each: latest, v1')
    .option('--limit <count>', 'at most so many', '1000')
    .option('-w, --watch', 'print it again whenever it changes, until Ctrl-C')
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print URNs only')
    .action(async options => {
      const { listFunctions } = await import('./read.ts');
      await listFunctions(io, options);
    });
}

function addDelete(noun: Command, { io }: Context): void {
  noun
    .command('delete')
    .alias('rm')
    .summary('delete functions, or one version of each')
    .description('With :<version> only that version; without, or with :latest, the function and all its versions.')
    .argument('<names...>', `${FUNCTION}; with :<version>, else all of it`)
    .option('--json', 'print JSON')
    .action(async (names, options) => {
      const { deleteFunctions } = await import('./write.ts');
      await deleteFunctions(io, names, options);
    });
}

function addReserve(noun: Command, { io }: Context): void {
  noun
    .command('reserve')
    .summary('keep instances of a version ready')
    .description(
      'Creates or changes the reserved instances of a label; without --min and --max it lists them.\n\n' +
        '  rookery function reserve hello:v1 --label gold --min 2 --max 10',
    )
    .argument('<name>', VERSION)
    .option('--label <label>', 'whose calls they are for')
    .option('--cluster <id>', 'where; else the default cluster')
    .option('--min <count>', 'how many are always there')
    .option('--max <count>', 'how many there may be')
    .option('--delete', 'give them up: those of the label, or without a label all')
    .option('--json', 'print JSON')
    .action(async (name, options) => {
      const { reserve } = await import('./reserve.ts');
      await reserve(io, name, options);
    });
}

function addFunctionFlags(command: Command): Command {
  return command
    .option('-f, --file <file>', 'the whole function, as YAML or JSON; - is stdin')
    .option(
      '--runtime <runtime>',
      'python3.11, nodejs22, go, java17, …; on the machine of the service, register detects its Python',
    )
    .option(
      '--code <dir>',
      'the directory with its code: uploaded, or on the host of the service when that is this machine',
    )
    .option('--layer <zip>', 'for runtime lambda: a zip whose files are below /opt; may be repeated', append)
    .option('--http-profile <profile>', `the contract of its server: ${oneOf(HTTP_PROFILE_NAMES)}`)
    .option('--upload', 'upload the code also to a service on this machine; to another one it always is')
    .option('--no-dependencies', 'install nothing of what requirements.txt, pyproject.toml or package.json ask for')
    .option('--code-path <path>', 'where the code of an agent stands in its sandbox (default: /opt/function/code)')
    .option('--handler <module.function>', 'what each call runs')
    .option('--initializer <module.function>', 'what runs once at the start')
    .option('--pre-stop <module.function>', 'what runs once at the end')
    .option('-e, --env <name=value>', 'for its environment; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('--cpu <millicores>', 'thousandths of a core (default: 1000)')
    .option('--memory <mb>', 'MB (default: 2048)')
    .option('--timeout <time>', 'the longest that a call may take: 30s, 15m')
    .option('--description <text>', 'what it is for')
    .option(
      '--input-schema <json>',
      'the JSON Schema of the event: JSON, @file, - for stdin, or hints for the type hints of the handler; {} removes it',
    )
    .option('--validate-input', 'refuse events that do not fit the schema, before the call')
    .option('--no-validate-input', 'call the function with any event')
    .option('--sandbox <type>', `${oneOf(SANDBOX_TYPES)}; else the default of the service`)
    .option('--image <reference>', 'the image, for docker and kubernetes')
    .option('--user <user>', 'the user that runs the code')
    .option('-p, --publish <port>', 'a port that it listens on: 8080, udp:53; may be repeated', append)
    .option('--min <count>', 'instances that always run')
    .option('--max <count>', 'instances at most')
    .option('--concurrency <count>', 'calls at once in one instance');
}
