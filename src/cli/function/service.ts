import type { Command } from 'commander';
import { append, SECRET_OPTION } from '../serve/config-flags.ts';
import type { Context, Io } from '../shared/io.ts';

const FUNCTION = 'hello, demo@hello or 0@demo@hello, with :<version> or the latest, or a URN';

/**
 * Describes the commands that run functions, under the noun of `function.ts`. `call.ts`, `records.ts` and
 * `dev.ts` implement them.
 */
export function addServiceCommands(noun: Command, { io }: Context): void {
  const add = (usage: string): Command => noun.command(usage);

  add('invoke')
    .summary('call a function')
    .description('Calls a version of a function and prints what it returns, as JSON. Without data the event is {}.')
    .argument('<function>', FUNCTION)
    .argument('[data]', 'the event, as JSON')
    .option('-d, --data <json>', 'the event: JSON, @file, or - for stdin')
    .option('--async', 'leave the call to the service and print its request id')
    .option('--wait', 'with --async: wait for the result; the request id goes to stderr')
    .option('--stream', 'print the events of the handler as they come')
    .option('--session <id>', 'the session, which keeps one instance; an id or the JSON of X-Instance-Session')
    .option('--label <label>', 'only instances that are reserved for this label')
    .option('--trace-id <id>', 'the trace id for handler and log')
    .option('--json', 'print the whole answer of the service (--async)')
    .action(async (name, data, options) => {
      const { invokeFunction } = await import('./call.ts');
      await invokeFunction(io, name, data, options);
    });

  add('instances')
    .summary('list the instances of a function')
    .description('Lists the instances that serve a version of a function now.')
    .argument('<function>', FUNCTION)
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print ids only')
    .action(async (name, options) => {
      const { listFunctionInstances } = await import('./records.ts');
      await listFunctionInstances(io, name, options);
    });

  addRecord(noun, io);

  add('logs')
    .summary('print what the code of a function wrote')
    .description(
      'Prints what the code of running instances wrote to stdout and stderr. Without --instance each line begins with the id of its instance.',
    )
    .argument('<function>', FUNCTION)
    .option('--instance <id>', 'only of this instance')
    .option('-f, --follow', 'follow until Ctrl-C, including instances that start later')
    .option('--tail <lines>', 'only the last lines of each instance')
    .option('--since <time>', 'only lines since then: 10m, or an RFC 3339 time')
    .action(async (name, options) => {
      const { printFunctionLogs } = await import('./records.ts');
      await printFunctionLogs(io, name, options);
    });

  add('dev')
    .summary('run a function from a directory while you write it')
    .description(
      'Registers the code of a directory as a function, calls it, prints logs and results, and restarts it whenever a file changes.\n' +
        'Each line of stdin is an event. Ctrl-C deletes the function.\n\n' +
        '  rookery function dev ./examples/hello --handler handler.handle -d \'{"name": "you"}\'',
    )
    .argument('<dir>', 'the directory with its code')
    .requiredOption('--handler <module.function>', 'what each call runs')
    .option('--initializer <module.function>', 'what runs once when an instance starts')
    .option('--runtime <runtime>', 'python3.11, nodejs22, go, java17, …; else the version of the python3 here')
    .option('--name <name>', 'its name: hello, demo@hello; else a new one in the service dev')
    .option('-d, --data <json>', 'the event of the call at the start and each change: JSON or @file')
    .option('-e, --env <name=value>', 'an environment variable; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('--cpu <millicores>', 'thousandths of a core', '500')
    .option('--memory <mb>', 'memory in MB', '256')
    .option('--timeout <time>', 'the longest that a call may take', '60s')
    .action(async (dir, options) => {
      const { develop } = await import('./dev.ts');
      await develop(io, dir, options);
    });
}

function addRecord(noun: Command, io: Io): void {
  noun
    .command('record')
    .summary('record all calls of a function for a time')
    .description(
      'Keeps every call of all versions in the history, with its whole input and output up to 1 MiB each. Another record changes the end.',
    )
    .argument('<function>', 'hello, demo@hello or 0@demo@hello, or its URN')
    .option('--for <time>', 'how long from now on: 10m, 1h; 7d at most', '1h')
    .option('--stop', 'end the recording')
    .option('--json', 'print JSON')
    .action(async (name, options) => {
      const { recordCalls } = await import('../call/record.ts');
      await recordCalls(io, 'function', name, options);
    });
}
