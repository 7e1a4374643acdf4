import type { Command } from 'commander';
import { inWords } from '../../explain/words.ts';
import { age } from '../../lib/age.ts';
import { resolveAgent } from '../agent/records.ts';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { type Column, printable, printFields, printJson, printTable } from '../shared/print.ts';
import { type CallLog, readCallLog } from './call-log.ts';
import { type Call, findCall, findCallsMadeBy, readCalls, targetOf } from './records.ts';
import { placeOf, printWaterfall } from './waterfall.ts';

interface ListOptions extends ClientOptions {
  readonly agent?: string;
  readonly namespace: string;
  readonly function?: string;
  readonly failed?: boolean;
  readonly trace?: string;
  readonly parent?: string;
  readonly after?: string;
  readonly before?: string;
  readonly text?: string;
  readonly limit: string;
  readonly follow?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

const MAX_LIMIT = 100_000;

/** Adds `rookery calls`, which lists calls. */
export function registerCalls(program: Command, { io }: Context): void {
  const command = program
    .command('calls')
    .summary('list calls of agents and functions')
    .description(
      'Lists calls that have ended, the newest first: failed and slow ones, and a sample of the others.\n\n' +
        '  rookery calls --failed --after 1h\n' +
        '  rookery calls --function demo@hello --text timeout\n' +
        '  rookery calls --agent hello --follow',
    )
    .option('--agent <agent>', 'calls of this agent: its name or id')
    .option('-n, --namespace <namespace>', 'the namespace of the agent', 'default')
    .option('--function <function>', 'calls of this function: <service>@<name> or its URN')
    .option('--failed', 'failed calls only')
    .option('--trace <id>', 'calls of the trace of an error message')
    .option('--parent <call>', 'calls that the handler of this call made')
    .option('--after <time>', 'calls from this moment on, or so long ago: 10m, 2026-01-31T12:00:00Z')
    .option('--before <time>', 'calls before this moment')
    .option('--text <text>', 'calls with this text in their input, output or error')
    .option('--limit <number>', 'print so many at most', '50')
    .option('--follow', 'print new calls as they end, until Ctrl-C; with --after, earlier ones first')
    .option('--json', 'print JSON; with --follow, a line per call')
    .option('-q, --quiet', 'print ids only')
    .action(async options => listCalls(io, options));
  addClientOptions(command);
}

/** Adds `rookery call show`, which prints a call. */
export function registerCall(program: Command, context: Context): void {
  const { io } = context;
  const call = program.command('call').summary('look at a call').description('Calls that the history has recorded.');
  const show = call
    .command('show')
    .summary('show a call')
    .description(
      'Shows a call with its stages and the spans of its code, its input, its output, the lines that its instance printed meanwhile, and the calls that its handler made.',
    )
    .argument('<call>', 'its id, the id of an asynchronous call, or the trace id of an error message')
    .option('--json', 'print JSON')
    .action(async (id, options) => showCall(io, id, options));
  addClientOptions(show);
  const replay = call
    .command('replay')
    .summary('run recorded calls again and compare the answers')
    .description(
      'Runs the recorded input again and prints the recorded and the new answer side by side. The exit code is 1 when they differ.\n\n' +
        'A call of a function runs on the latest version, or on --version. A call of an agent runs on a temporary copy of the agent, which is deleted afterwards.\n\n' +
        'With --all, the recorded calls of an agent or function run in order, and each that differs is a line.\n\n' +
        '  rookery call replay 0b0c… --version v2\n' +
        '  rookery call replay 0b0c… --code ./repaired\n' +
        '  rookery call replay --all --agent hello --since 1h --code ./repaired',
    )
    .argument('[call]', 'its id, or the id of an asynchronous call; not with --all')
    .option('--all', 'the recorded calls of --agent or --function, oldest first, on one copy')
    .option('--agent <agent>', 'with --all: the agent, by its name or id')
    .option('-n, --namespace <namespace>', 'the namespace of the agent', 'default')
    .option('--function <function>', 'with --all: the function, <service>@<name> or its URN')
    .option('--since <time>', 'with --all: calls from this moment on, or so long ago: 10m, 2026-01-31T12:00:00Z')
    .option('--limit <number>', 'with --all: the newest calls, so many at most', '100')
    .option('--timeout <time>', 'with --all: how long a call may take', '60s')
    .option('--version <version>', 'the version of the function; default: the latest')
    .option('--code <directory>', 'code that the copy of the agent runs; default: that of the agent')
    .option('--upload', 'upload the directory also to a service on this machine')
    .option('--allow-writes', 'let the copy share directories that the agent may write')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      if ((id === undefined) === (options.all !== true)) throw usageError('Give the id of a call, or --all.');
      if (id === undefined) {
        const { replayCalls } = await import('./replay-all.ts');
        context.exitCode = await replayCalls(io, options);
        return;
      }
      if (options.agent !== undefined || options.function !== undefined || options.since !== undefined) {
        throw usageError('--agent, --function and --since need --all.');
      }
      const { replayCall } = await import('./replay.ts');
      context.exitCode = await replayCall(io, id, options);
    });
  addClientOptions(replay);
}

async function listCalls(io: Io, options: ListOptions): Promise<void> {
  const { limit: given, agent, before, follow = false } = options;
  const limit = Number(given);
  if (!/^\d+$/.test(given) || limit < 1 || limit > MAX_LIMIT) {
    throw usageError(`--limit must be a whole number from 1 to ${MAX_LIMIT}, not ${JSON.stringify(given)}.`);
  }
  if (agent !== undefined && options.function !== undefined) {
    throw usageError('Give --agent or --function, not both.');
  }
  if (follow) {
    if (before !== undefined) throw usageError('Give --follow or --before, not both.');
    const { untilInterrupted } = await import('./follow.ts');
    await untilInterrupted(io, io => followFrom(io, options, limit));
    return;
  }
  const client = await Client.open(options, io);
  const calls = await readCalls(client, await filterOf(client, options), limit);
  if (options.json === true) printJson(io, calls);
  else if (options.quiet === true) for (const { id } of calls) io.out.write(`${id}\n`);
  else printTable(io, COLUMNS, calls);
}

/** Follows calls from now on; with `--after` prints the earlier ones first. */
async function followFrom(io: Io, options: ListOptions, limit: number): Promise<void> {
  const { followCalls, newestPosition } = await import('./follow.ts');
  const client = await Client.open(options, io);
  const filter = await filterOf(client, options);
  // Read before the list, so that no call is between them.
  const position = await newestPosition(client, filter);
  const earlier = options.after === undefined ? [] : await readCalls(client, filter, limit);
  // A duration counts from each request.
  filter.delete('after');
  await followCalls(io, client, filter, { ...options, earlier, position });
}

/** Returns the query of the options that select calls. */
async function filterOf(client: Client, options: ListOptions): Promise<URLSearchParams> {
  const { agent, namespace, failed, trace, parent, after, before, text } = options;
  const query = new URLSearchParams();
  const add = (name: string, value: string | undefined) => value !== undefined && query.set(name, value);
  add('agent', agent === undefined ? undefined : await resolveAgent(client, agent, namespace));
  add('function', options.function);
  add('outcome', failed === true ? 'error' : undefined);
  add('trace_id', trace);
  add('parent', parent);
  add('after', after);
  add('before', before);
  add('text', text);
  return query;
}

const COLUMNS: readonly Column<Call>[] = [
  { title: 'ID', text: ({ id }) => id },
  { title: 'CALLED', text: targetOf, isFlexible: true, gives: 'last' },
  { title: 'AGE', text: call => age(call.start_time) },
  { title: 'TIME', text: ({ duration_ms }) => inWords(duration_ms) },
  {
    title: 'OUTCOME',
    text: ({ outcome, error_code }) => error_code ?? outcome,
    style: ({ outcome }) => (outcome === 'error' ? 'red' : null),
  },
  { title: 'ERROR', text: ({ error = '' }) => error.split('\n', 1)[0] ?? '', isFlexible: true, gives: 'first' },
];

async function showCall(io: Io, id: string, options: ClientOptions & { readonly json?: boolean }): Promise<void> {
  const client = await Client.open(options, io);
  const call = await findCall(client, id);
  const log = await readCallLog(client, call);
  const made = await findCallsMadeBy(client, call.id);
  if (options.json === true) {
    printJson(io, { ...call, log, made });
    return;
  }
  const stages = (['queue', 'place', 'start', 'load', 'run'] as const)
    .map(stage => [stage, call[`${stage}_ms`]] as const)
    .filter(([, ms]) => ms > 0);
  printFields(io, [
    ['id', call.id],
    [call.kind, targetOf(call)],
    ['mode', call.mode],
    ['outcome', call.error_code === null ? 'ok' : `error ${call.error_code}`],
    ['error', call.error],
    ['start', call.start_time],
    ['time', inWords(call.duration_ms)],
    ['stages', stages.map(([stage, ms]) => `${stage} ${inWords(ms)}`).join(', ')],
    ['instance', call.instance_id],
    ['token', call.caller],
    ['trace', call.trace_id],
    ['made by', call.parent_id ?? ''],
  ]);
  printWaterfall(io, call);
  printBody(io, 'input', call.input, call.is_input_cut === true, call.input_bytes);
  printBody(io, 'output', call.output ?? undefined, call.is_output_cut === true, call.output_bytes);
  if (log !== null) printLog(io, call, log);
  if (made.length === 0) return;
  io.out.write('\ncalls that it made:\n');
  printTable(io, COLUMNS, made);
}

/**
 * Marks lines that another call may have printed with `?`. Lines of the context's logger begin with their
 * time since the start, and with the span in which they were written.
 */
function printLog(io: Io, call: Call, { lines, is_cut: isCut }: CallLog): void {
  if (lines.length === 0) return;
  const isMixed = lines.some(line => !line.is_certain);
  io.out.write(`\nlog${isMixed ? ' (another call of the instance may have printed lines with ?)' : ''}:\n`);
  const places = lines.map(({ offset_ms }) => printable(placeOf(offset_ms, call)));
  const width = Math.max(...places.map(place => place.length));
  for (const [index, { text, is_certain: isCertain }] of lines.entries()) {
    const place = width === 0 ? '' : `${(places[index] ?? '').padEnd(width)}  `;
    io.out.write(`${isMixed ? (isCertain ? '  ' : '? ') : ''}${place}${printable(text)}\n`);
  }
  if (isCut) io.out.write('(the instance printed more)\n');
}

function printBody(io: Io, title: string, text: string | undefined, isCut: boolean, bytes: number): void {
  if (text === undefined) return;
  io.out.write(`\n${title}${isCut ? ` (the beginning of ${bytes} bytes)` : ''}:\n${printable(text)}\n`);
}
