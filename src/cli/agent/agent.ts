import type { Command } from 'commander';
import { HTTP_PROFILE_NAMES } from '../../core/http-profiles.ts';
import { DRIVER_NAMES } from '../../core/sandbox-types.ts';
import { append, SECRET_OPTION } from '../serve/config-flags.ts';
import { addClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Context } from '../shared/io.ts';
import { addLogs } from '../shared/logs.ts';
import { oneOf } from '../shared/print.ts';
import { addCopies } from './copy-commands.ts';
import { addFiles } from './files.ts';

const UPLOAD = 'upload the code also to a service on this machine';
const AGENT = 'the id of the agent, or its name';

/** Describes the commands. The other files of this folder implement them. */
export function register(program: Command, context: Context): void {
  const agent = program
    .command('agent')
    .summary('create, call and look after agents')
    .description('Resident agent instances.')
    .enablePositionalOptions();
  addCreate(agent, context);
  addInvoke(agent, context);
  addList(agent, context);
  addGet(agent, context);
  addDelete(agent, context);
  addRestart(agent, context);
  addRecord(agent, context);
  addPauses(agent, context);
  addAlarms(agent, context);
  addUpdate(agent, context);
  addCopies(agent, context, addAgentCommand(agent, 'export'));
  addLogs(agent, context);
  addExec(agent, context);
  addProcesses(agent, context);
  addShell(agent, context);
  addCopy(agent, context);
  addFiles(agent, context);
  addPortForward(agent, context);
  // Client options are added last, so that the help begins with the command's own options.
  for (const command of agent.commands) {
    if (command.commands.length === 0) addClientOptions(command);
  }
}

/** Adds a command whose arguments are ids of agents, or their names in a namespace. */
function addAgentCommand(agent: Command, name: string): Command {
  return agent.command(name).option('-n, --namespace <namespace>', 'the namespace of the name', 'default');
}

function addCreate(agent: Command, context: Context): void {
  agent
    .command('create')
    .summary('create an agent')
    .description(
      'Creates an agent and prints its id.\n\n' +
        '  rookery agent create hello --code ./examples/hello --handler handler.handle\n' +
        '  rookery agent create -f agent.yaml',
    )
    .argument('[name]', 'its name, unique in the namespace while it lives')
    .option('-f, --file <file>', 'the whole request, as YAML or JSON; - is stdin')
    .option('-n, --namespace <namespace>', 'its namespace', 'default')
    .option('--code <dir>', 'the code directory, mounted read-only at --code-path')
    .option('--upload', UPLOAD)
    .option('--no-dependencies', 'do not install requirements.txt, pyproject.toml or package.json')
    .option('--handler <module.function>', 'what each call runs')
    .option('--initializer <module.function>', 'what runs once at the start')
    .option('--pre-stop <module.function>', 'what runs once at the end')
    .option('--alarm <module.function>', 'with --durable: what gets alarms; else --handler')
    .option('--sleep-entry <module.function>', 'with --durable: what runs before it falls asleep')
    .option(
      '--runtime <runtime>',
      'python3.11, nodejs22, go, java17, …; on the machine of the service the python3 there by default',
    )
    .option('--http-profile <profile>', `the contract of its server: ${oneOf(HTTP_PROFILE_NAMES)}`)
    .option('--code-path <path>', 'where the code stands in the sandbox', '/code')
    .option('-e, --env <name=value>', 'an environment variable; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('-v, --mount <src:dst[:ro]>', 'a directory or file of the host; may be repeated', append)
    .option('--workspace <dir>', 'a host directory as home and working directory')
    .option(
      '--sandbox <type>',
      `${oneOf(DRIVER_NAMES.filter(type => type !== 'process'))}; else the default of the service`,
    )
    .option('--image <image>', 'the image; default: the files of the host', 'host')
    .option('--user <user>', 'the user that runs the code; default: root')
    .option('--publish <[proto:]port>', 'a port of the sandbox to publish; may be repeated', append)
    .option('--expose <port[:access]>', 'give a port an address of its own; access is token, link or public')
    .option('--cpu <millicores>', 'thousandths of a core; else 1000')
    .option('--memory <mb>', 'memory in MB; else 2048')
    .option('--restart <policy>', 'never, on-failure[:max] or always[:max]; else never')
    .option('--ttl <time>', 'how long it lives: 30m; else until it is deleted')
    .option('--idle <time>', 'how long it may stand unused: 10m')
    .option('--on-expiry <action>', 'delete or pause at the end of --ttl or --idle; else delete')
    .option('--durable', 'save context.state before each answer; it survives crashes and restarts')
    .option(
      '--files <path[:mb]>',
      'with --durable: a directory that is kept, 64 MB unless given, for example /data:200',
    )
    .option('--sleep-after <time>', 'put a durable agent to sleep after this idle time; 0: only on request; else 60s')
    .option('--label <name=value>', 'a label for lists; may be repeated', append)
    .option('--urn <urn>', 'create it from a registered function instead')
    .option('--idempotency-key <key>', 'the same key and request give the same agent')
    .option('--replace', 'replace the agent of this name once the code is loaded')
    .option('--json', 'print JSON')
    .action(async (name, options) => {
      const { createAgent } = await import('./create.ts');
      context.exitCode = await createAgent(context.io, name, options);
    });
}

function addInvoke(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'invoke')
    .summary('call the handler of an agent')
    .description('Calls the handler and prints what it returns, as JSON. Without data the event is {}.')
    .argument('<agent>', AGENT)
    .argument('[data]', 'the event, as JSON')
    .option('-d, --data <json>', 'the event: JSON, @file, or - for stdin')
    .option('--timeout <time>', 'the time limit: 500ms, 30s, 5m')
    .option('--trace-id <id>', 'the trace id for handler and log')
    .option('--json', 'print the whole answer of the service')
    .action(async (id, data, options) => {
      const { invokeAgent } = await import('./call.ts');
      await invokeAgent(io, id, data, options);
    });
}

function addList(agent: Command, { io }: Context): void {
  agent
    .command('list')
    .alias('ls')
    .summary('list agents')
    .description('Lists the agents of the tenant.')
    .option('-n, --namespace <namespace>', 'only those of this namespace')
    .option('--name <name>', 'only the one of this name')
    .option('--status <status>', 'CREATING, RUNNING, PAUSED, SLEEPING, STOPPING or FAILED')
    .option('--label <name=value>', 'only those with this label; may be repeated', append)
    .option('--limit <count>', 'at most so many', '1000')
    .option('-w, --watch', 'print it again at each change, until Ctrl-C')
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print ids only')
    .action(async options => {
      const { listAgents } = await import('./records.ts');
      await listAgents(io, options);
    });
}

function addGet(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'get')
    .summary('show an agent')
    .description('Shows everything that the service knows about an agent.')
    .argument('<agent>', AGENT)
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { getAgent } = await import('./records.ts');
      await getAgent(io, id, options);
    });
}

function addDelete(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'delete')
    .alias('rm')
    .summary('end and remove agents')
    .description('Runs pre_stop, ends the sandbox and removes it.')
    .argument('<agents...>', 'ids or names')
    .option('--grace <time>', 'how long pre_stop and the end may take: 10s')
    .option('--json', 'print JSON')
    .action(async (ids, options) => {
      const { deleteAgents } = await import('./records.ts');
      await deleteAgents(io, ids, options);
    });
}

function addRestart(agent: Command, context: Context): void {
  addAgentCommand(agent, 'restart')
    .summary('give an agent a new sandbox')
    .description('Starts a new sandbox under the same id and name, also for an agent that FAILED or is stuck.')
    .argument('<agent>', AGENT)
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { restartAgent } = await import('./records.ts');
      context.exitCode = await restartAgent(context.io, id, options);
    });
}

function addRecord(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'record')
    .summary('record all calls of an agent for a time')
    .description(
      'Keeps every call in the history, with its whole input and output up to 1 MiB each. Another record changes the end.\n\n' +
        '  rookery agent record hello --for 10m\n' +
        '  rookery calls --agent hello --follow',
    )
    .argument('<agent>', AGENT)
    .option('--for <time>', 'how long from now on: 10m, 1h; 7d at most', '1h')
    .option('--stop', 'end the recording')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { recordCalls } = await import('../call/record.ts');
      await recordCalls(io, 'agent', id, options);
    });
}

function addPauses(agent: Command, { io }: Context): void {
  const actions = [
    [
      'pause',
      'pause agents',
      'Freezes all processes of an agent and keeps their memory. Its time to live stands still.',
    ],
    ['resume', 'resume paused agents', 'Continues the processes of a paused agent.'],
    ['wake', 'wake sleeping agents', 'Starts a sleeping agent with its saved state.'],
  ] as const;
  for (const [action, summary, description] of actions)
    addAgentCommand(agent, action)
      .summary(summary)
      .description(description)
      .argument('<agents...>', 'ids or names')
      .option('--json', 'print JSON')
      .action(async (ids, options) => {
        const { changeAgents } = await import('./lifetime.ts');
        await changeAgents(io, action, ids, options);
      });
  addAgentCommand(agent, 'sleep')
    .summary('put durable agents to sleep')
    .description('Removes the sandbox of a durable agent that is idle. Its next call starts it with its saved state.')
    .argument('<agents...>', 'ids or names')
    .option('--wait <time>', 'wait this long for the end of its uses: 30s')
    .option('--force', 'cut its uses off; open calls fail and change nothing')
    .option('--json', 'print JSON')
    .action(async (ids, options) => {
      const { putToSleep } = await import('./lifetime.ts');
      await putToSleep(io, ids, options);
    });
  addAgentCommand(agent, 'ttl')
    .summary('set the time to live of an agent')
    .description('Sets the time to live from now and prints the end.')
    .argument('<agent>', AGENT)
    .argument('<time>', '30m, 2h, 7d; none: until it is deleted')
    .option('--json', 'print JSON')
    .action(async (id, time, options) => {
      const { setTtl } = await import('./lifetime.ts');
      await setTtl(io, id, time, options);
    });
}

function addUpdate(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'update')
    .summary('change settings of a durable agent')
    .description(
      'Changes code or settings of a durable agent. Its state and its alarms stay. The next start takes the change.\n\n' +
        '  rookery agent update user-7 --code ./chat --now\n' +
        '  rookery agent update user-7 --memory 1024 --sleep-after 10m',
    )
    .argument('<agent>', AGENT)
    .option('--code <dir>', 'the new code directory')
    .option('--upload', UPLOAD)
    .option('--no-dependencies', 'do not install requirements.txt, pyproject.toml or package.json')
    .option('--handler <module.function>', 'what each call runs')
    .option('--initializer <module.function>', 'what runs once at each start; empty: nothing')
    .option('--pre-stop <module.function>', 'what runs once at the end; empty: nothing')
    .option('--alarm <module.function>', 'what gets alarms; empty: --handler')
    .option('--sleep-entry <module.function>', 'what runs before it falls asleep; empty: nothing')
    .option('--runtime <runtime>', 'python3.12, nodejs22, …')
    .option('-e, --env <name=value>', 'all environment variables from now on; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('--cpu <millicores>', 'thousandths of a core')
    .option('--memory <mb>', 'memory in MB')
    .option('--restart <policy>', 'never, on-failure[:max] or always[:max]')
    .option('--sleep-after <time>', 'put it to sleep after this idle time; 0: only on request')
    .option('--urn <urn>', 'another version of its registered function')
    .option('--now', 'between two calls, instead of at the next start')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { updateAgent } = await import('./update.ts');
      await updateAgent(io, id, options);
    });
}

function addAlarms(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'alarms')
    .summary('list, set and cancel alarms of a durable agent')
    .description(
      'Lists the alarms of a durable agent, or changes one. At its time the agent gets an alarm as a call, also if it sleeps then.\n\n' +
        '  rookery agent alarms user-7\n' +
        '  rookery agent alarms user-7 --set remind --after 1h --payload \'"tea"\'\n' +
        "  rookery agent alarms user-7 --set nightly --cron '0 3 * * *' --tz Europe/Berlin\n" +
        '  rookery agent alarms user-7 --cancel remind',
    )
    .argument('<agent>', AGENT)
    .option('--set <name>', 'set the alarm of this name')
    .option('--at <time>', 'with --set: once, at this time of RFC 3339')
    .option('--after <time>', 'with --set: once, after this time: 90s, 1h')
    .option('--every <time>', 'with --set: again and again after this time, at least 5s')
    .option('--cron <fields>', 'with --set: again and again, at the times of five fields of cron')
    .option('--tz <zone>', 'with --cron: its zone; else UTC')
    .option('--payload <json>', 'with --set: what the agent gets')
    .option('--max-late <time>', 'with --set: drop it if it is later than this')
    .option('--cancel <name>', 'cancel the alarm of this name')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { changeAlarms } = await import('./alarms.ts');
      await changeAlarms(io, id, options);
    });
}

function addExec(agent: Command, context: Context): void {
  addAgentCommand(agent, 'exec')
    .summary('run a command in the sandbox of an agent')
    .description(
      'Runs a command in the sandbox and returns its exit code. Put options before the command: rookery agent exec hello -w / ls -l',
    )
    .argument('<agent>', AGENT)
    .argument('<command...>', 'the command and its arguments')
    .option('-w, --workdir <dir>', 'where it runs, inside the sandbox')
    .option('-e, --env <name=value>', 'added to its environment; may be repeated', append)
    .option('-i, --stdin', 'send stdin to it')
    .option('-d, --detach', 'print its pid and leave it running; see "rookery agent ps"')
    .option('--tag <tag>', 'with --detach: a name for it')
    .option('--user <user>', 'with --detach: the account inside')
    .option('--timeout <time>', 'the time limit; the exit code is then 124', '300s')
    .passThroughOptions()
    .option('--json', 'print JSON')
    .action(async (id, words, _options, self) => {
      const { execInAgent } = await import('./call.ts');
      const command = commandOf(self, words);
      if (self.opts().detach === true) {
        const { startInAgent } = await import('./processes.ts');
        await startInAgent(context.io, id, command, self.opts());
        return;
      }
      if (self.opts().tag !== undefined || self.opts().user !== undefined)
        throw usageError('--tag and --user need --detach.');
      context.exitCode = await execInAgent(context.io, id, command, self.opts());
    });
}

/**
 * Returns the command among the words after the agent. Options may precede the command, because no program
 * has such a name. A `--` before the command is not part of it.
 */
function commandOf(self: Pick<Command, 'parseOptions'>, words: readonly string[]): readonly string[] {
  const end = words.indexOf('--');
  if (end === 0) return words.slice(1);
  if (!words[0]?.startsWith('-')) return words;
  const { operands, unknown } = self.parseOptions(end === -1 ? [...words] : words.slice(0, end));
  const rest = [...operands, ...unknown];
  if (rest[0]?.startsWith('-')) throw usageError(`"${rest[0]}" is no option of "rookery agent exec".`);
  const command = end === -1 ? rest : [...rest, ...words.slice(end + 1)];
  if (command.length === 0) throw usageError('The command is missing: rookery agent exec <agent> -- <command...>.');
  return command;
}

const PROCESS = 'its pid inside, or its tag';

function addProcesses(agent: Command, context: Context): void {
  addAgentCommand(agent, 'ps')
    .summary('list the detached processes of an agent')
    .description('Lists the running processes that were started with "rookery agent exec --detach" or over the API.')
    .argument('<agent>', AGENT)
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { listProcesses } = await import('./processes.ts');
      await listProcesses(context.io, id, options);
    });
  addAgentCommand(agent, 'attach')
    .summary('follow the output of a detached process')
    .description(
      'Prints the output of a process from now on, until it ends, and returns its exit code. Ctrl-C, or Ctrl-] in a terminal of it, leaves it running.',
    )
    .argument('<agent>', AGENT)
    .argument('<process>', PROCESS)
    .option('-i, --stdin', 'send stdin to it')
    .action(async (id, process, options) => {
      const { attachToProcess } = await import('./processes.ts');
      context.exitCode = await attachToProcess(context.io, id, process, options);
    });
  addAgentCommand(agent, 'kill')
    .summary('signal a detached process of an agent')
    .description('Sends a signal to a process, not to its children.')
    .argument('<agent>', AGENT)
    .argument('<process>', PROCESS)
    .option('-s, --signal <name>', 'KILL, TERM, INT, …', 'TERM')
    .action(async (id, process, options) => {
      const { killProcess } = await import('./processes.ts');
      await killProcess(context.io, id, process, options);
    });
}

function addShell(agent: Command, context: Context): void {
  addAgentCommand(agent, 'shell')
    .summary('open a shell in the sandbox of an agent')
    .description(
      'Opens a login shell, or runs a command, with the terminal of this process; without a terminal, with pipes. Returns its exit code.\n\n' +
        '  rookery agent shell hello\n' +
        '  rookery agent shell hello -- python3 -i',
    )
    .argument('<agent>', AGENT)
    .argument('[command...]', 'the command after --; else a login shell')
    .option('-w, --workdir <dir>', 'where it runs, inside the sandbox')
    .option('-e, --env <name=value>', 'added to its environment; may be repeated', append)
    .option('-T, --no-tty', 'use pipes, also on a terminal')
    .action(async (id, command, options) => {
      const { shellInAgent } = await import('./command.ts');
      context.exitCode = await shellInAgent(context.io, id, command, options);
    });
}

function addCopy(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'cp')
    .summary('copy files into and out of the sandbox of an agent')
    .description(
      'Copies a file or a directory, with modes. A path in an agent is <agent>:<path>; - is stdin or stdout.\n\n' +
        '  rookery agent cp ./data hello:/tmp/data\n' +
        '  rookery agent cp hello:/tmp/result.json -',
    )
    .argument('<source>', 'what is copied: <agent>:<path>, a path here, or -')
    .argument('<target>', 'the copy; in an existing directory under its own name')
    .action(async (source, target, options) => {
      const { copyFiles } = await import('./cp.ts');
      await copyFiles(io, source, target, options);
    });
}

function addPortForward(agent: Command, { io }: Context): void {
  addAgentCommand(agent, 'port-forward')
    .summary('reach ports inside the sandbox of an agent')
    .description(
      'Listens on 127.0.0.1 and forwards each connection to a port in the sandbox, until Ctrl-C.\n\n' +
        '  rookery agent port-forward hello 8080\n' +
        '  rookery agent port-forward hello 8081:80 :5432',
    )
    .argument('<agent>', AGENT)
    .argument('<ports...>', '[LOCAL:]REMOTE; :REMOTE takes any free port here')
    .action(async (id, ports, options) => {
      const { forwardPorts } = await import('./port-forward.ts');
      await forwardPorts(io, id, ports, options);
    });
}
