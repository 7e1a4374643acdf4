import type { Command } from 'commander';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';

/** Adds the command `rookery mcp`. */
export function register(program: Command, { io }: Context): void {
  addClientOptions(program.command('mcp'))
    .summary('an MCP server over stdio, for desktop clients')
    .description(
      'Speaks the Model Context Protocol over stdin and stdout: the functions of the tenant and its sandboxes are the tools.\n' +
        'Passes each message to /mcp of the service, with the token of the context. Ends with its input.',
    )
    .action(async options => {
      const { proxyStdio } = await import('./stdio-proxy.ts');
      await proxyStdio(io, options);
    });
}
