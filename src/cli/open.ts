import type { Command } from 'commander';
import { isLoopback } from '../config/contradictions.ts';
import { ACCESSES, type Access } from '../core/address.ts';
import { resolveAgent } from './agent-records.ts';
import { addClientOptions, Client, type ClientOptions } from './client.ts';
import { parseDurationMs } from './duration.ts';
import { CliError, usageError } from './exit.ts';
import type { Context, Io } from './io.ts';
import { oneOf } from './print.ts';

/** `expose` of a record. */
export interface Exposed {
  readonly port: number;
  readonly access: Access;
  readonly address: string | null;
  readonly path: string;
}

interface OpenOptions extends ClientOptions {
  readonly namespace: string;
  readonly expires?: string;
}

export function register(program: Command, context: Context): void {
  addClientOptions(program.command('open'))
    .summary('print the address of an agent')
    .description(
      'Prints the address of an agent that was created with --expose. Of one with the access "link" it is a signed link, which logs a browser in until it ends.',
    )
    .argument('<agent>', 'the id of the agent, or its name')
    .option('-n, --namespace <namespace>', 'the namespace of an agent that is named by its name', 'default')
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

/** The address that works from here: below localhost is this machine, which the service may not be on. */
export function addressFor({ addresses }: Pick<Client, 'addresses'>, { address, path }: Exposed): string {
  const isHere = isLoopback(addresses.frontend.hostname.replace(/^\[|\]$/g, ''));
  const isLocal = address !== null && /^http:\/\/[^/]+\.localhost(:|\/)/.test(address);
  return address === null || (isLocal && !isHere) ? new URL(path, addresses.frontend).href : address;
}

/** `8000`, `8000:public`. */
export function parseExpose(text: string): { readonly port: number; readonly access?: Access } {
  const [, port = '', access] = /^(\d{1,5})(?::(\w+))?$/.exec(text) ?? [];
  const known = ACCESSES.find(each => each === access);
  if (port === '' || (access !== undefined && known === undefined)) {
    throw usageError(`--expose must be a port, or port:access with ${oneOf(ACCESSES)}, not ${JSON.stringify(text)}.`);
  }
  return { port: Number(port), ...(known && { access: known }) };
}
