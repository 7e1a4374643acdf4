import type { Command } from 'commander';
import { INSTALLED_SANDBOX_TYPES } from '../core/sandbox-types.ts';
import { addClientOptions } from './client.ts';
import { append, SECRET_OPTION } from './config-flags.ts';
import type { Context } from './io.ts';
import { addLogs } from './logs.ts';
import { oneOf } from './print.ts';

const UPLOAD = 'upload the code also to a service on this machine; to another one it always is';
const AGENT = 'the id of the agent, or its name';

/** Describes the commands; what they do stands in the files beside this one that begin with `agent-`. */
export function register(program: Command, context: Context): void {
  const { io } = context;
  const agent = program
    .command('agent')
    .summary('create, call and look after agents')
    .description('Resident agent instances.')
    .enablePositionalOptions();
  const add = (usage: string): Command => agent.command(usage);
  const addForOne = (usage: string): Command =>
    add(usage).option('-n, --namespace <namespace>', 'the namespace of an agent that is named by its name', 'default');

  addCreate(add('create')).action(async (name, options) => {
    const { createAgent } = await import('./agent-create.ts');
    context.exitCode = await createAgent(io, name, options);
  });

  addForOne('invoke')
    .summary('call the handler of an agent')
    .description('Calls the handler and prints what it returns, as JSON. Without data the event is {}.')
    .argument('<agent>', AGENT)
    .argument('[data]', 'the event, as JSON')
    .option('-d, --data <json>', 'the event: JSON, @file, or - for stdin')
    .option('--timeout <time>', 'the longest that the call may take: 500ms, 30s, 5m')
    .option('--trace-id <id>', 'the trace id that the handler and the log see')
    .option('--json', 'print the whole answer of the service')
    .action(async (id, data, options) => {
      const { invokeAgent } = await import('./agent-call.ts');
      await invokeAgent(io, id, data, options);
    });

  add('list')
    .alias('ls')
    .summary('list agents')
    .description('Lists the agents of the tenant.')
    .option('-n, --namespace <namespace>', 'only those of this namespace')
    .option('--name <name>', 'only the one of this name')
    .option('--status <status>', 'only those that are CREATING, RUNNING, STOPPING or FAILED')
    .option('--limit <count>', 'at most so many', '1000')
    .option('-w, --watch', 'print it again whenever it changes, until Ctrl-C')
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print ids only')
    .action(async options => {
      const { listAgents } = await import('./agent-records.ts');
      await listAgents(io, options);
    });

  addForOne('get')
    .summary('show an agent')
    .description('Shows everything that the service knows about an agent.')
    .argument('<agent>', AGENT)
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { getAgent } = await import('./agent-records.ts');
      await getAgent(io, id, options);
    });

  addForOne('delete')
    .alias('rm')
    .summary('end and remove agents')
    .description('Runs pre_stop, ends the sandbox and removes it.')
    .argument('<agents...>', 'ids or names')
    .option('--grace <time>', 'how long pre_stop and the end may take: 10s')
    .option('--json', 'print JSON')
    .action(async (ids, options) => {
      const { deleteAgents } = await import('./agent-records.ts');
      await deleteAgents(io, ids, options);
    });

  addForOne('restart')
    .summary('give an agent a new sandbox')
    .description(
      'Ends the sandbox and starts a new one under the same id and name; also for one that FAILED or is stuck.',
    )
    .argument('<agent>', AGENT)
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { restartAgent } = await import('./agent-records.ts');
      context.exitCode = await restartAgent(io, id, options);
    });

  addLogs(agent, context);

  addForOne('exec')
    .summary('run a command in the sandbox of an agent')
    .description(
      'Runs a command in the sandbox and ends with its exit code. Options stand before the agent: rookery agent exec -w / hello ls -l',
    )
    .argument('<agent>', AGENT)
    .argument('<command...>', 'the command and its arguments')
    .option('-w, --workdir <dir>', 'where it runs, inside the sandbox')
    .option('-e, --env <name=value>', 'added to its environment; may be repeated', append)
    .option('-i, --stdin', 'send stdin to it')
    .option('--timeout <time>', 'the longest that it may take; its exit code is 124 then', '300s')
    .passThroughOptions()
    .option('--json', 'print JSON')
    .action(async (id, command, options) => {
      const { execInAgent } = await import('./agent-call.ts');
      // Everything behind the agent belongs to the command, a `--` in front of it does not.
      const argv = command[0] === '--' ? command.slice(1) : command;
      context.exitCode = await execInAgent(io, id, argv, options);
    });

  addForOne('shell')
    .summary('open a shell in the sandbox of an agent')
    .description(
      'Opens a login shell, or runs a command, with the terminal that this runs in; without one, with pipes. Ends with its exit code.\n\n' +
        '  rookery agent shell hello\n' +
        '  rookery agent shell hello -- python3 -i',
    )
    .argument('<agent>', AGENT)
    .argument('[command...]', 'the command and its arguments, behind a --; else a login shell')
    .option('-w, --workdir <dir>', 'where it runs, inside the sandbox')
    .option('-e, --env <name=value>', 'added to its environment; may be repeated', append)
    .option('-T, --no-tty', 'pipes even where there is a terminal')
    .action(async (id, command, options) => {
      const { shellInAgent } = await import('./agent-shell.ts');
      context.exitCode = await shellInAgent(io, id, command, options);
    });

  addForOne('cp')
    .summary('copy files into and out of the sandbox of an agent')
    .description(
      'Copies a file, or a directory with all that is in it, and keeps modes. A path in an agent is written <agent>:<path>; - is stdin or stdout.\n\n' +
        '  rookery agent cp ./data hello:/tmp/data\n' +
        '  rookery agent cp hello:/tmp/result.json -',
    )
    .argument('<source>', 'what is copied: <agent>:<path>, a path here, or -')
    .argument('<target>', 'where to; in a directory that is there, under its own name')
    .action(async (source, target, options) => {
      const { copyFiles } = await import('./agent-cp.ts');
      await copyFiles(io, source, target, options);
    });

  addForOne('port-forward')
    .summary('reach ports inside the sandbox of an agent')
    .description(
      'Listens on ports of this machine (127.0.0.1 only) and passes every connection on to a port inside the sandbox, until Ctrl-C.\n\n' +
        '  rookery agent port-forward hello 8080\n' +
        '  rookery agent port-forward hello 8081:80 :5432',
    )
    .argument('<agent>', AGENT)
    .argument('<ports...>', '[LOCAL:]REMOTE; :REMOTE takes any free port here')
    .action(async (id, ports, options) => {
      const { forwardPorts } = await import('./agent-port-forward.ts');
      await forwardPorts(io, id, ports, options);
    });

  // Last, so that the help begins with what is the command's own.
  for (const command of agent.commands) addClientOptions(command);
}

function addCreate(command: Command): Command {
  return command
    .summary('create an agent')
    .description(
      'Creates an agent and prints its id.\n\n' +
        '  rookery agent create hello --code ./examples/hello --handler handler.handle\n' +
        '  rookery agent create -f agent.yaml',
    )
    .argument('[name]', 'its name, unique in the namespace while it lives')
    .option('-f, --file <file>', 'the whole request, as YAML or JSON; - is stdin')
    .option('-n, --namespace <namespace>', 'its namespace', 'default')
    .option('--code <dir>', 'the directory with its code; it stands read-only at --code-path in the sandbox')
    .option('--upload', UPLOAD)
    .option('--no-dependencies', 'install nothing of what requirements.txt, pyproject.toml or package.json ask for')
    .option('--handler <module.function>', 'what each call runs')
    .option('--initializer <module.function>', 'what runs once at the start')
    .option('--pre-stop <module.function>', 'what runs once at the end')
    .option(
      '--runtime <runtime>',
      'python3.11, nodejs22, go, java17, …; else the version of the python3 here, for a service on this machine',
    )
    .option('--code-path <path>', 'where the code stands in the sandbox', '/code')
    .option('-e, --env <name=value>', 'an environment variable; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('-v, --mount <src:dst[:ro]>', 'a directory or file of the host; may be repeated', append)
    .option('--workspace <dir>', 'a directory of the host that is its home and working directory')
    .option(
      '--sandbox <type>',
      `${oneOf(INSTALLED_SANDBOX_TYPES.filter(type => type !== 'process'))}; else the default of the service`,
    )
    .option('--image <image>', 'the image; the default sandbox uses the files of the host', 'host')
    .option('--user <user>', 'who runs the code; else root')
    .option('--publish <[proto:]port>', 'a port of the sandbox to publish; may be repeated', append)
    .option('--expose <port[:access]>', 'give a port an address of its own; access is token, link or public')
    .option('--cpu <millicores>', 'thousandths of a core; else 1000')
    .option('--memory <mb>', 'memory in MB; else 2048')
    .option(
      '--restart <policy>',
      'never, on-failure[:max] or always[:max]: what follows when it ends by itself; else never',
    )
    .option('--urn <urn>', 'create it from a registered function instead')
    .option('--idempotency-key <key>', 'the same key and request give the same agent')
    .option('--json', 'print JSON');
}
