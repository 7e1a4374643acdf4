import type { Command } from 'commander';
import { addClientOptions, Client, type ClientOptions } from './shared/client.ts';
import { followEventBlocks } from './shared/event-blocks.ts';
import type { Context, Io } from './shared/io.ts';
import { coloured, printable } from './shared/print.ts';

interface EventsOptions extends ClientOptions {
  readonly types?: string;
  readonly after?: string;
  readonly json?: boolean;
}

/** The fields of an event that are shown. A service of another version may omit fields. */
export interface ShownEvent {
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
  /** Name of the alarm. */
  readonly alarm?: string;
}

/** Adds the command `rookery events`, which prints the events of the service until the user interrupts it. */
export function register(program: Command, context: Context): void {
  addClientOptions(program.command('events'))
    .summary('follow what happens in the service')
    .description(
      'Prints events of agents, instances of functions and jobs as they happen, until Ctrl-C: created, ready, failed, restarting,\n' +
        'stopping, ended, scaled, job, alarm_failed. Each replica reports the events of all.',
    )
    .option('--types <list>', 'only these, with commas between them')
    .option('--after <id>', 'start after the event with this id')
    .option('--json', 'print each event as a line of JSON')
    .action(async options => followEvents(context.io, options));
}

async function followEvents(io: Io, options: EventsOptions): Promise<void> {
  const client = await Client.open(options, io);
  const query = options.types === undefined ? '' : `?${new URLSearchParams({ types: options.types })}`;
  const headers: Record<string, string> = options.after === undefined ? {} : { 'last-event-id': options.after };
  const stream = { path: `/api/events${query}`, headers, noun: 'stream' };
  await followEventBlocks(io, client, stream, block => show(io, block, options.json === true));
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
  const style = event.type === 'failed' || event.type === 'alarm_failed' || event.status === 'FAILED' ? 'red' : 'green';
  const time = event.at?.slice(11, 23) ?? '';
  const text = [aboutOf(event), event.status, event.reason ?? event.message].filter(Boolean).join('  ');
  io.out.write(`${time}  ${coloured(io, io.out, style, event.type.padEnd(12))}  ${printable(text)}\n`);
}

function aboutOf(event: ShownEvent): string {
  if (event.job !== undefined) return `job ${event.job}`;
  if (event.type === 'scaled') return `${event.function}  ${event.ready} of ${event.instances} instances are ready`;
  if (event.owner === 'function') return `${event.function}  ${event.instance_id}`;
  const alarm = event.alarm === undefined ? '' : `  alarm ${event.alarm}`;
  return `agent ${event.namespace}/${event.name}  ${event.instance_id}${alarm}`;
}
