import type { Command } from 'commander';
import { append, SECRET_OPTION } from './config-flags.ts';
import type { Context } from './io.ts';

const FUNCTION = 'its name (hello, demo@hello or 0@demo@hello), with :<version> or the latest, or a URN';

/** Describes the commands that run functions, under the noun of `function.ts`; what they do stands in `function-call.ts`, `function-records.ts` and `function-dev.ts`. */
export function addServiceCommands(noun: Command, { io }: Context): void {
  const add = (usage: string): Command => noun.command(usage);

  add('invoke')
    .summary('call a function')
    .description('Calls a version of a function and prints what it returns, as JSON. Without data the event is {}.')
    .argument('<function>', FUNCTION)
    .argument('[data]', 'the event, as JSON')
    .option('-d, --data <json>', 'the event: JSON, @file, or - for stdin')
    .option('--async', 'leave the call to the service and print its request id')
    .option('--wait', 'with --async: wait for the end and print what it returns; its request id goes to stderr')
    .option('--stream', 'print the events of the handler as they come')
    .option('--session <id>', 'all calls of one session reach one instance; an id, or the JSON of X-Instance-Session')
    .option('--label <label>', 'only instances that are reserved for this label')
    .option('--trace-id <id>', 'the trace id that the handler and the log see')
    .option('--json', 'print the whole answer of the service (--async)')
    .action(async (name, data, options) => {
      const { invokeFunction } = await import('./function-call.ts');
      await invokeFunction(io, name, data, options);
    });

  add('instances')
    .summary('list the instances of a function')
    .description('Lists the instances that serve a version of a function now.')
    .argument('<function>', FUNCTION)
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print ids only')
    .action(async (name, options) => {
      const { listFunctionInstances } = await import('./function-records.ts');
      await listFunctionInstances(io, name, options);
    });

  add('logs')
    .summary('print what the code of a function wrote')
    .description(
      'Prints what the code of the instances that run now wrote to stdout and stderr. The beginning of the id of its instance stands before each line, unless there is --instance.',
    )
    .argument('<function>', FUNCTION)
    .option('--instance <id>', 'only of this instance')
    .option('-f, --follow', 'go on until Ctrl-C; instances that start later join')
    .option('--tail <lines>', 'only the last lines of each instance')
    .option('--since <time>', 'only lines since then: 10m, or an RFC 3339 time')
    .action(async (name, options) => {
      const { printFunctionLogs } = await import('./function-records.ts');
      await printFunctionLogs(io, name, options);
    });

  add('dev')
    .summary('run a function from a directory while you write it')
    .description(
      'Registers a function whose code is a directory of the machine of the service, calls it, prints its logs and results, and begins anew ' +
        'with fresh instances whenever a file changes. Each line of stdin is an event to call it with. Ctrl-C ends and deletes it.\n\n' +
        '  rookery function dev ./examples/hello --handler handler.handle -d \'{"name": "you"}\'',
    )
    .argument('<dir>', 'the directory with its code')
    .requiredOption('--handler <module.function>', 'what each call runs')
    .option('--initializer <module.function>', 'what runs once when an instance starts')
    .option('--runtime <runtime>', 'python3.11, nodejs22, go, java17, …; else the version of the python3 here')
    .option('--name <name>', 'its name: hello, demo@hello; else a new one in the service dev')
    .option('-d, --data <json>', 'call it with this event at the start and after each change: JSON, or @file')
    .option('-e, --env <name=value>', 'an environment variable; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('--cpu <millicores>', 'thousandths of a core', '500')
    .option('--memory <mb>', 'memory in MB', '256')
    .option('--timeout <time>', 'the longest that a call may take', '60s')
    .action(async (dir, options) => {
      const { develop } = await import('./function-dev.ts');
      await develop(io, dir, options);
    });
}
