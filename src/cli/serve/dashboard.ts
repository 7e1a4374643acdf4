import { spawn } from 'node:child_process';
import type { Command } from 'commander';
import { isLoopback } from '../../config/contradictions.ts';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';

export function register(program: Command, context: Context): void {
  addClientOptions(program.command('dashboard'))
    .summary('open the dashboard in a browser')
    .description(
      'Prints the address of the dashboard, and opens it with --open. With authentication on it is a link that logs a browser in\n' +
        'once, within a minute, with the token of this command.',
    )
    .option('--open', 'open it in the browser of this machine')
    .action(async options => showDashboard(context.io, options));
}

async function showDashboard(io: Io, options: ClientOptions & { readonly open?: boolean }): Promise<void> {
  const client = await Client.open(options, io);
  const url = new URL('/', client.addresses.frontend);
  // Cookies ignore ports. With `localhost`, pages of published ports at 127.0.0.1 do not receive the session
  // cookie.
  if (isLoopback(url.hostname)) url.hostname = 'localhost';
  const { code } = await client.json('POST', '/api/session/links').catch((error: unknown) => {
    if (error instanceof CliError && error.status === 409) return { code: undefined };
    throw error;
  });
  if (typeof code === 'string') url.hash = `/login?code=${code}`;
  io.out.write(`${url.href}\n`);
  if (options.open !== true) return;
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open';
  const child = spawn(program, [url.href], { stdio: 'ignore', detached: true });
  child.once('error', () => io.err.write(`${program} is not here: open the link by hand.\n`));
  child.unref();
}
