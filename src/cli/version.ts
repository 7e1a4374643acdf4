import type { Command } from 'commander';
import { addClientOptions, Client, type ClientOptions } from './shared/client.ts';
import type { Context } from './shared/io.ts';
import { printJson } from './shared/print.ts';

/** Adds the command `rookery version`, which prints the versions of this program and the service. */
export function register(program: Command, context: Context): void {
  addClientOptions(program.command('version'))
    .summary('print the versions of this program and of the service')
    .description('Prints the version of this program, and of the service that it speaks with.')
    .option('--json', 'print JSON')
    .action(async options => printVersions(context, options));
}

async function printVersions(
  { io, version }: Context,
  options: ClientOptions & { readonly json?: boolean },
): Promise<void> {
  const isJson = options.json === true;
  // Printed first, because this line needs no service.
  if (!isJson) io.out.write(`client ${version}\n`);
  const client = await Client.open(options, io);
  const { version: server } = await client.json('GET', '/api/session');
  const { href: address } = client.addresses.frontend;
  if (isJson) printJson(io, { client: version, server, address });
  else io.out.write(`server ${String(server)} at ${address}\n`);
}
