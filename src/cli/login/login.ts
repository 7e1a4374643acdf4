import { resolve } from 'node:path';
import type { Command } from 'commander';
import { Client, checkToken, DEFAULT_ADDRESSES, metaBehind, parseAddress, readToken } from '../shared/client.ts';
import {
  checkContextName,
  contextInForce,
  readContexts,
  type Server,
  serverOf,
  writeContexts,
} from '../shared/contexts.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import { readHidden, readStdin } from '../shared/input.ts';
import type { Context, Io } from '../shared/io.ts';
import { printWarning } from '../shared/print.ts';

interface LoginOptions {
  readonly name?: string;
  readonly metaAddress?: string;
  readonly tokenFile?: string;
  readonly caFile?: string;
  readonly tenant?: string;
}

/** Adds the command `rookery login`, which checks and stores a server and its token. */
export function registerLogin(program: Command, context: Context): void {
  program
    .command('login')
    .summary('keep a server and a token for all commands')
    .description(
      'Checks the token with the server, keeps both as a context, and makes it the current one. The token comes from --token-file,\n' +
        'from stdin or from a prompt. A server without authentication needs none.\n\n' +
        '  rookery login https://rookery.example.com --token-file token',
    )
    .argument('[url]', 'the frontend; else that of the context')
    .option('--name <context>', 'the name of the context; default: the host')
    .option('--meta-address <url>', 'the meta_service; else the frontend, or port 31182 of the same host')
    .option('--token-file <file>', 'a file with the token')
    .option('--ca-file <file>', 'the PEM file of its authority, if Node.js does not trust it')
    .option('--tenant <tenant>', 'the tenant to name, when authentication is off')
    .action(async (url, options) => login(context.io, url, options));
}

async function login(io: Io, url: string | undefined, options: LoginOptions): Promise<void> {
  const contexts = await readContexts(io.environment);
  const again = url === undefined ? (options.name ?? contexts.current) : null;
  const before = again === null ? null : serverOf(contexts, again);
  const frontend = parseAddress(url ?? before?.address, 'frontend');
  const name = checkContextName(options.name ?? again ?? frontend.host.replaceAll(/[[\]]/g, '').replaceAll(':', '-'));
  const caFile = options.caFile === undefined ? before?.caFile : resolve(options.caFile);
  const tenant = options.tenant ?? before?.tenant;
  const named = options.metaAddress ?? before?.metaAddress;
  const server: Server = {
    address: frontend.href,
    metaAddress: parseAddress(named ?? metaBehind(frontend).href, 'meta').href,
    ...(caFile === undefined ? {} : { caFile }),
    ...(tenant === undefined ? {} : { tenant }),
  };
  const token = (await needsToken(io, server)) ? await tokenFor(io, server, options) : undefined;
  const found = await withMeta(io, server, { token, isNamed: named !== undefined });
  const kept = token === undefined ? found : { ...found, token };
  await writeContexts(io.environment, { current: name, servers: { ...contexts.servers, [name]: kept } });
  io.err.write(`Logged in to ${frontend.href}${token === undefined ? ', which asks for no token' : ''}.\n`);
  io.out.write(`${name}\n`);
}

function metaBeside(frontend: URL): string {
  const url = new URL(frontend.origin);
  url.port = new URL(DEFAULT_ADDRESSES.meta).port;
  return url.href;
}

/** Opens a client without environment variables, because the stored context must work without them. */
function clientOf(io: Io, { address, metaAddress, caFile }: Server, token?: string): Promise<Client> {
  const options = { address, metaAddress, ...(caFile === undefined ? {} : { caFile }) };
  // Names a directory without a local token. Such a token changes with each start, so a context must not
  // store it.
  return Client.open(
    { ...options, dataDir: '/nonexistent', ...(token === undefined ? {} : { token }) },
    {
      ...io,
      environment: {},
    },
  );
}

async function needsToken(io: Io, server: Server): Promise<boolean> {
  try {
    await (await clientOf(io, server)).json('GET', '/api/session');
    return false;
  } catch (error) {
    if (error instanceof CliError && error.status === 401) return true;
    throw error;
  }
}

async function tokenFor(io: Io, server: Server, { tokenFile }: LoginOptions): Promise<string> {
  const token = tokenFile === undefined ? await askedToken(io) : await readToken({ tokenFile }, {});
  if (token === null) throw usageError('The token is missing: give it with --token-file or on stdin.');
  try {
    await (await clientOf(io, server, token)).json('GET', '/api/session');
    return token;
  } catch (error) {
    if (!(error instanceof CliError) || error.status === null) throw error;
    const why = error.message.split('. Give a token')[0];
    throw new CliError(`${server.address} does not take this token: ${why}. Nothing was kept.`, EXIT.refused);
  }
}

async function askedToken(io: Io): Promise<string | null> {
  const text = io.terminal === undefined ? await readStdin(io) : await readHidden(io, io.terminal, 'Token: ');
  return text.trim() === '' ? null : checkToken(text.trim(), io.terminal === undefined ? 'stdin' : 'the answer');
}

/**
 * Checks the meta_service, which serves functions and pools. Returns the server with the address of a
 * meta_service beside the frontend if the user named none and the frontend has none. Failure is a warning,
 * because a login for agents alone is useful.
 */
async function withMeta(
  io: Io,
  server: Server,
  { token, isNamed }: { readonly token: string | undefined; readonly isNamed: boolean },
): Promise<Server> {
  const failure = await metaFailure(io, server, token);
  if (failure === null) return server;
  const beside = { ...server, metaAddress: metaBeside(new URL(server.address)) };
  if (!isNamed && (await metaFailure(io, beside, token)) === null) return beside;
  const what = 'Commands about functions and pools will fail: say where the meta_service is with --meta-address.';
  printWarning(io, `${failure.message.split(/\. |\n/)[0]}. ${what}`);
  return server;
}

/** Returns why the meta_service of a server cannot be used, or null. */
async function metaFailure(io: Io, server: Server, token: string | undefined): Promise<CliError | null> {
  try {
    const client = await clientOf(io, server, token);
    await client.json('GET', '/serverless/v1/functions?pageIndex=1&pageSize=1', { entry: 'meta', timeoutMs: 10_000 });
    return null;
  } catch (error) {
    if (error instanceof CliError) return error;
    throw error;
  }
}

/** Adds the command `rookery logout`, which removes a stored server and its token. */
export function registerLogout(program: Command, { io }: Context): void {
  program
    .command('logout')
    .summary('forget the token of a server')
    .description(
      'Forgets the token of the current or the named context. The context stays until "rookery context remove".',
    )
    .argument('[context]', 'the name of a context')
    .action(async (given: string | undefined) => {
      const found = await contextInForce(given, io.environment);
      if (found === null)
        throw usageError(
          'There is no current context, so there is no token to forget. "rookery context list" shows all contexts.',
        );
      const { name, server } = found;
      const { token: _, ...rest } = server;
      const contexts = await readContexts(io.environment);
      await writeContexts(io.environment, { ...contexts, servers: { ...contexts.servers, [name]: rest } });
      io.err.write(`The token of ${name} is forgotten here. It stays valid until it expires.\n`);
    });
}
