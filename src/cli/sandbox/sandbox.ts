import type { Command } from 'commander';
import { append, SECRET_OPTION } from '../serve/config-flags.ts';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';

const SANDBOX = 'the id of the sandbox, or its name';

/** Adds the command `rookery sandbox`, which creates, lists and ends sandboxes without code. */
export function register(program: Command, context: Context): void {
  const sandbox = program
    .command('sandbox')
    .summary('create sandboxes without code')
    .description(
      'Sandboxes without code, for commands, files, ports and cells of code. They are agents: the commands of `rookery agent` take them too.',
    );
  addCreate(sandbox, context);
  addFork(sandbox, context);
  sandbox
    .command('list')
    .alias('ls')
    .summary('list sandboxes')
    .description('Lists the sandboxes of the tenant.')
    .option('-l, --label <name=value>', 'only with this label; may be repeated', append)
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print ids only')
    .action(async options => (await import('./records.ts')).listSandboxes(context.io, options));
  sandbox
    .command('kill')
    .summary('end sandboxes')
    .description('Ends sandboxes at once, with all their processes and files.')
    .argument('<sandbox...>', SANDBOX)
    .option('-n, --namespace <namespace>', 'the namespace of the names', 'default')
    .option('--json', 'print JSON')
    .action(async (ids, options) => (await import('../agent/records.ts')).deleteAgents(context.io, ids, options));
  for (const command of sandbox.commands) addClientOptions(command);
}

function addCreate(sandbox: Command, { io }: Context): void {
  sandbox
    .command('create')
    .summary('create a sandbox')
    .description(
      'Creates a sandbox and prints its id.\n\n' +
        '  rookery sandbox create --ttl 1h\n' +
        '  rookery sandbox create --template code-interpreter-v1\n' +
        '  rookery sandbox create --image python:3.12',
    )
    .argument('[name]', 'its name, unique in the namespace while it lives')
    .option('--template <name>', 'base, or code-interpreter-v1', 'base')
    .option('--image <image>', 'an image of the Docker daemon instead of a template: python:3.12')
    .option('-n, --namespace <namespace>', 'its namespace', 'default')
    .option('-e, --env <name=value>', 'an environment variable; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('--ttl <time>', 'how long it lives: 30m; else until it is killed')
    .option('--idle <time>', 'how long it may stand unused: 10m')
    .option('--on-expiry <action>', 'delete or pause at the end of --ttl or --idle; else delete')
    .option('--label <name=value>', 'a label for lists; may be repeated', append)
    .option('--cpu <millicores>', 'thousandths of a core; else 1000')
    .option('--memory <mb>', 'memory in MB; else 2048')
    .option('--json', 'print JSON')
    .action(async (name, options) => (await import('./records.ts')).createSandbox(io, name, options));
}

function addFork(sandbox: Command, context: Context): void {
  sandbox
    .command('fork')
    .summary('start sandboxes with the files of another one')
    .description(
      'Starts sandboxes with a copy of the files, the variables and the settings of a sandbox, and prints their ids. Memory is not copied: end the processes of the sandbox first.\n\n' +
        '  rookery sandbox fork my-sandbox --count 3',
    )
    .argument('<sandbox>', SANDBOX)
    .option('--count <number>', 'how many; else 1')
    .option('--name <name>', 'the name of the new sandbox; with --count, -1, -2 … follow it')
    .option('-n, --namespace <namespace>', 'the namespace of the name of the sandbox', 'default')
    .option('-e, --env <name=value>', 'a further environment variable; may be repeated', append)
    .option('--ttl <time>', 'how long they live: 30m; else as long as the sandbox was to live')
    .option('--files-only', 'copy the files although the sandbox runs processes')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      context.exitCode = await (await import('./fork.ts')).forkSandbox(context.io, id, options);
    });
}

/** Adds the command `rookery run`, which runs a cell of code. */
export function registerRun(program: Command, context: Context): void {
  const run = program
    .command('run')
    .summary('run code in a sandbox')
    .description(
      'Runs code in a sandbox and prints its output and the value of its last expression. The sandbox is made for it, and killed afterwards.\n\n' +
        "  rookery run 'print(1)'\n" +
        '  rookery run -f analysis.py --in my-sandbox',
    )
    .argument('[code]', 'the code; - is stdin')
    .option('-f, --file <file>', 'a file with the code')
    .option('--language <language>', 'python, or javascript where the sandbox has Node.js; else python')
    .option('-e, --env <name=value>', 'an environment variable; may be repeated', append)
    .option('--in <sandbox>', 'an existing sandbox with the template code-interpreter-v1, which keeps the names')
    .option('-n, --namespace <namespace>', 'the namespace of the name', 'default')
    .option('--json', 'print the lines of the interpreter, which are JSON')
    .action(async (code, options) => {
      context.exitCode = await (await import('./run.ts')).runCode(context.io, code, options);
    });
  addClientOptions(run);
}
