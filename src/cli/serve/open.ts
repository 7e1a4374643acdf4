import type { Command } from 'commander';
import { addressFor, type Exposed } from '../agent/public-address.ts';
import { resolveAgent } from '../agent/records.ts';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { parseDurationMs } from '../shared/duration.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';

interface OpenOptions extends ClientOptions {
  readonly namespace: string;
  readonly expires?: string;
}

export function register(program: Command, context: Context): void {
  addClientOptions(program.command('open'))
    .summary('print the address of an agent')
    .description(
      'Prints the public URL of an agent that was created with --expose; for the access "link" a signed link.',
    )
    .argument('<agent>', 'the id of the agent, or its name')
    .option('-n, --namespace <namespace>', 'the namespace of the name', 'default')
    .option('--expires <time>', 'how long the link holds: 10m, 12h; else an hour')
    .action(async (agent, options) => openAgent(context.io, agent, options));
}

async function openAgent(io: Io, given: string, options: OpenOptions): Promise<void> {
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const { instance } = await client.json('GET', `/api/agent/${encodeURIComponent(id)}`);
  const { expose } = instance as { expose?: Exposed };
  if (expose === undefined) {
    throw new CliError(
      `Agent ${given} has no address: it was created without --expose. "rookery agent port-forward" reaches its ports.`,
    );
  }
  const address = addressFor(client, expose);
  if (expose.access !== 'link' || address !== expose.address) {
    if (options.expires !== undefined) throw usageError(`--expires is for links, and ${given} has none: ${address}`);
    io.out.write(`${address}\n`);
    return;
  }
  const expires =
    options.expires === undefined
      ? {}
      : { expires_seconds: Math.ceil(parseDurationMs(options.expires, '--expires') / 1000) };
  const { url } = await client.json('POST', `/api/agent/${encodeURIComponent(id)}/link`, {
    body: JSON.stringify(expires),
  });
  io.out.write(`${url}\n`);
}
