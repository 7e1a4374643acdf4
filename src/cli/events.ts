import type { Command } from 'commander';
import { LIMITS } from '../core/limits.ts';
import { resolveAgent } from './agent/records.ts';
import { addClientOptions, Client, type ClientOptions } from './shared/client.ts';
import { followEventBlocks } from './shared/event-blocks.ts';
import { usageError } from './shared/exit.ts';
import type { Context, Io } from './shared/io.ts';
import { coloured, printable } from './shared/print.ts';

interface EventsOptions extends ClientOptions {
  readonly types?: string;
  readonly agent?: string;
  readonly namespace: string;
  readonly function?: string;
  readonly job?: string;
  readonly recent?: string;
  readonly follow: boolean;
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
        'stopping, ended, scaled, job, alarm_failed. Each replica reports the events of all.\n\n' +
        '  rookery events --types failed,alarm_failed\n' +
        '  rookery events --agent hello --no-follow',
    )
    .option('--types <list>', 'only these, with commas between them')
    .option('--agent <agent>', 'events of this agent: its name or id')
    .option('-n, --namespace <namespace>', 'the namespace of the agent', 'default')
    .option('--function <function>', 'events of this function: <service>@<name> or its URN')
    .option('--job <job>', 'events of this job')
    .option('--recent <number>', 'begin with so many stored events; default: 0, with --no-follow all')
    .option('--no-follow', 'end after the stored events')
    .option('--after <id>', 'start after the event with this id')
    .option('--json', 'print each event as a line of JSON')
    .action(async options => followEvents(context.io, options));
}

async function followEvents(io: Io, options: EventsOptions): Promise<void> {
  const { types, agent, function: functionName, job, after, follow } = options;
  const { recent = follow ? '0' : String(LIMITS.keptEvents) } = options;
  if (!/^\d{1,9}$/.test(recent) || Number(recent) > LIMITS.keptEvents) {
    throw usageError(
      `--recent must be a whole number from 0 to ${LIMITS.keptEvents}, not ${JSON.stringify(options.recent)}.`,
    );
  }
  if ([agent, functionName, job].filter(each => each !== undefined).length > 1)
    throw usageError('Give one of --agent, --function and --job.');
  if (after !== undefined && (options.recent !== undefined || !follow))
    throw usageError('Give --after alone, without --recent or --no-follow.');
  const client = await Client.open(options, io);
  const query = new URLSearchParams({ recent, follow: String(follow) });
  if (types !== undefined) query.set('types', types);
  if (agent !== undefined) query.set('agent', await resolveAgent(client, agent, options.namespace));
  if (functionName !== undefined) query.set('function', functionName);
  if (job !== undefined) query.set('job', job);
  const headers: Record<string, string> = after === undefined ? {} : { 'last-event-id': after };
  const stream = { path: `/api/events?${query}`, headers, noun: 'stream', ends: !follow };
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
