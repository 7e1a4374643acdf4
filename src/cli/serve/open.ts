import { spawn } from 'node:child_process';
import type { Command } from 'commander';
import { isLoopback } from '../../config/contradictions.ts';
import { addressFor, type Exposed, resolveAgent } from '../agent/records.ts';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { parseDurationMs } from '../shared/units.ts';

interface OpenOptions extends ClientOptions {
  readonly namespace: string;
  readonly expires?: string;
}

/** Adds the command `rookery open`, which prints the public URL of an agent. */
export function registerOpen(program: Command, context: Context): void {
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

/** Adds the command `rookery dashboard`, which prints the address of the dashboard or opens it. */
export function registerDashboard(program: Command, context: Context): void {
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
