import type { Command } from 'commander';
import { addClientOptions, Client, type ClientOptions } from './shared/client.ts';
import { CliError, EXIT } from './shared/exit.ts';
import type { Context, Io } from './shared/io.ts';
import { coloured, printable } from './shared/print.ts';

/** Detects a connection that broke silently, because the service sends at least a heartbeat every 15 s. */
const SILENT_MS = 40_000;

interface EventsOptions extends ClientOptions {
  readonly types?: string;
  readonly after?: string;
  readonly json?: boolean;
}

/** The fields of an event that are shown. A service of another version may omit fields. */
interface ShownEvent {
  readonly type: string;
  readonly at?: string;
  readonly owner?: string;
  readonly instance_id?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly function?: string;
  readonly instances?: number;
  readonly ready?: number;
  readonly job?: string;
  readonly status?: string;
  readonly message?: string;
  readonly reason?: string;
}

/** Adds the command `rookery events`, which prints the events of the service until the user interrupts it. */
export function register(program: Command, context: Context): void {
  addClientOptions(program.command('events'))
    .summary('follow what happens in the service')
    .description(
      'Prints events of agents, instances of functions and jobs as they happen, until Ctrl-C: created, ready, failed, restarting,\n' +
        'stopping, ended, scaled, job. Each replica reports the events of all.',
    )
    .option('--types <list>', 'only these, with commas between them')
    .option('--after <id>', 'start after the event with this id')
    .option('--json', 'print each event as a line of JSON')
    .action(async options => followEvents(context.io, options));
}

async function followEvents(io: Io, options: EventsOptions): Promise<void> {
  const client = await Client.open(options, io);
  const query = options.types === undefined ? '' : `?${new URLSearchParams({ types: options.types })}`;
  const headers = {
    accept: 'text/event-stream',
    ...(options.after === undefined ? {} : { 'last-event-id': options.after }),
  };
  const answer = await client.stream('GET', `/api/events${query}`, { headers });
  answer.setEncoding('utf8');
  const silence = setTimeout(() => answer.destroy(new Error(`nothing came for ${SILENT_MS / 1000} s`)), SILENT_MS);
  let rest = '';
  try {
    for await (const chunk of answer as AsyncIterable<string>) {
      silence.refresh();
      const blocks = (rest + chunk).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) show(io, block, options.json === true);
    }
  } catch (error) {
    if (io.signal.aborted) return;
    throw new CliError(`The connection to the service broke (${(error as Error).message}).`, EXIT.unreachable);
  } finally {
    clearTimeout(silence);
  }
  if (!io.signal.aborted) throw new CliError('The service has ended the stream.', EXIT.unreachable);
}

function show(io: Io, block: string, asJson: boolean): void {
  const fields = new Map(block.split('\n').map(line => [line.split(':', 1)[0], line.slice(line.indexOf(':') + 2)]));
  const data = fields.get('data');
  if (data === undefined) return;
  const event = JSON.parse(data) as ShownEvent;
  if (asJson) {
    io.out.write(`${JSON.stringify({ id: fields.get('id'), ...event })}\n`);
    return;
  }
  if (event.type === 'hello') return;
  if (event.type === 'reset') {
    io.err.write('Events are missing: they are too old, or a replica has stopped.\n');
    return;
  }
  const style = event.type === 'failed' || event.status === 'FAILED' ? 'red' : 'green';
  const time = event.at?.slice(11, 23) ?? '';
  const text = [aboutOf(event), event.status, event.reason ?? event.message].filter(Boolean).join('  ');
  io.out.write(`${time}  ${coloured(io, io.out, style, event.type.padEnd(10))}  ${printable(text)}\n`);
}

function aboutOf(event: ShownEvent): string {
  if (event.job !== undefined) return `job ${event.job}`;
  if (event.type === 'scaled') return `${event.function}  ${event.ready} of ${event.instances} instances are ready`;
  if (event.owner === 'function') return `${event.function}  ${event.instance_id}`;
  return `agent ${event.namespace}/${event.name}  ${event.instance_id}`;
}
