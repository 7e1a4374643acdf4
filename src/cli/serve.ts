import { setFlagsFromString } from 'node:v8';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import type { Logger } from '../telemetry/logger.ts';
import { addConfigFlags, configFlagsOf } from './config-flags.ts';
import { CliError, EXIT } from './exit.ts';
import type { Context, Io } from './io.ts';
import type { Server, StopReason } from './run-server.ts';

export function register(program: Command, context: Context): void {
  const command = program
    .command('serve')
    .summary('start the service in the foreground')
    .description(
      'Starts the service in the foreground. When it is ready it prints "ready frontend=<url> meta=<url>".\n' +
        'SIGTERM or Ctrl-C stop it: running calls may end, agents and jobs live on. A second one ends it at once.',
    )
    .action(async options => {
      context.exitCode = await serve(context.io, options);
    });
  addConfigFlags(command);
}

async function serve(io: Io, options: Readonly<Record<string, unknown>>): Promise<number> {
  const config = await loadConfigOrExplain(io, options);
  // Whoever makes a file here says its mode, and users of sandboxes read some: what the shell before us takes from modes is not for those.
  process.umask(0o022);
  const [{ serveFirst }, { createLogger }, { createServer }, { runServer }, { createServiceManager }] =
    await Promise.all([
      import('../lib/priority.ts'),
      import('../telemetry/logger.ts'),
      import('../server.ts'),
      import('./run-server.ts'),
      import('./service-manager.ts'),
    ]);
  const { isTerminal } = io.err;
  const hasColours = isTerminal && !io.environment.NO_COLOR;
  const format = config.log.format === 'auto' ? (isTerminal ? 'pretty' : 'json') : config.log.format;
  const logger = createLogger({ level: config.log.level, format, hasColours });
  serveFirst();
  // After many creates V8 takes what a call is made of for long-lived and makes it in the old space, from where it keeps all that it leads to:
  // a tenth of each young generation then outlived its calls, and the whole heap was collected every second.
  setFlagsFromString('--no-allocation-site-pretenuring');
  const server = await openServer(createServer, config, logger);
  try {
    return await runServer(server, {
      stopAgents: config.stopAgents,
      stopGraceMs: config.stopGraceMs,
      logger,
      print: line => io.out.write(`${line}\n`),
      tell: createServiceManager(io.environment, logger),
      onStop: onProcessStop,
    });
  } catch (error) {
    throw startError(error, config);
  }
}

/** Every problem of the configuration on a line of its own, exit code 78. */
export async function loadConfigOrExplain(io: Io, options: Readonly<Record<string, unknown>>): Promise<Config> {
  const [{ loadConfig }, { ConfigError }] = await Promise.all([
    import('../config/env.ts'),
    import('../config/config.ts'),
  ]);
  try {
    return await loadConfig(configFlagsOf(options), io.environment);
  } catch (error) {
    if (error instanceof ConfigError) throw new CliError(error.problems.join('\n'), EXIT.config);
    throw error;
  }
}

async function openServer(
  createServer: (config: Config, logger: Logger) => Server | Promise<Server>,
  config: Config,
  logger: Logger,
): Promise<Server> {
  try {
    return await createServer(config, logger);
  } catch (error) {
    throw startError(error, config);
  }
}

function startError(error: unknown, config: Config): CliError {
  const { code, port, message, stack } = error as NodeJS.ErrnoException & { port?: number };
  if (code === 'EADDRINUSE') {
    return new CliError(
      `Port ${port} is taken by another process. Choose another one with --port and --meta-port, or stop it.`,
    );
  }
  if (code === 'EADDRNOTAVAIL' || code === 'EACCES') {
    const hosts = [config.host, config.metaHost].join(' and ');
    return new CliError(`The service cannot listen on ${hosts} (${message}). Choose another --host or --port.`);
  }
  const isOurs = (error as Error).name === 'ServiceError';
  return new CliError(`The service could not start: ${isOurs ? message : (stack ?? String(error))}`);
}

/** SIGTERM, SIGINT and what nobody caught, until the returned function is called. */
function onProcessStop(listener: (reason: StopReason) => void): () => void {
  const onSignal = (name: string): void => listener({ kind: 'signal', name });
  const onFault = (error: unknown): void => listener({ kind: 'fault', error });
  process
    .on('SIGTERM', onSignal)
    .on('SIGINT', onSignal)
    .on('uncaughtException', onFault)
    .on('unhandledRejection', onFault);
  return () => {
    process
      .off('SIGTERM', onSignal)
      .off('SIGINT', onSignal)
      .off('uncaughtException', onFault)
      .off('unhandledRejection', onFault);
  };
}
