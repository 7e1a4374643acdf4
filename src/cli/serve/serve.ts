import { setFlagsFromString } from 'node:v8';
import type { Command } from 'commander';
import type { Config } from '../../config/config.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { addConfigFlags, configFlagsOf } from './config-flags.ts';
import type { Server, StopReason } from './run-server.ts';

/** Adds the command `rookery serve`, which starts the service. */
export function register(program: Command, context: Context): void {
  const command = program
    .command('serve')
    .summary('start the service in the foreground')
    .description(
      'Starts the service in the foreground. When it is ready it prints "ready frontend=<url> meta=<url>".\n' +
        'SIGTERM or Ctrl-C stops the service after the running calls; agents and jobs continue. A second signal stops it immediately.',
    )
    .action(async options => {
      context.exitCode = await serve(context.io, options);
    });
  addConfigFlags(command);
}

async function serve(io: Io, options: Readonly<Record<string, unknown>>): Promise<number> {
  const config = await loadConfigOrExplain(io, options);
  // The service sets the mode of each file itself, and users of sandboxes read some files. The umask of the
  // shell must not remove those rights.
  process.umask(0o022);
  const [{ serveFirst }, { createLogger }, { createServer }, { runServer }, { createServiceManager }] =
    await Promise.all([
      import('../../lib/child-process.ts'),
      import('../../telemetry/logger.ts'),
      import('../../server/server.ts'),
      import('./run-server.ts'),
      import('./run-server.ts'),
    ]);
  const { isTerminal } = io.err;
  const hasColours = isTerminal && !io.environment.NO_COLOR;
  const format = config.log.format === 'auto' ? (isTerminal ? 'pretty' : 'json') : config.log.format;
  const logger = createLogger({ level: config.log.level, format, hasColours });
  for (const warning of config.warnings) logger.warn({}, warning);
  serveFirst();
  // Without this flag V8 allocates objects of calls in the old space after many creates. Those objects then
  // kept a tenth of each young generation alive, and V8 collected the whole heap every second.
  setFlagsFromString('--no-allocation-site-pretenuring');
  const server = await openServer(createServer, config, logger);
  void warnOfLost(logger);
  try {
    return await runServer(server, {
      stopAgents: config.stopAgents,
      stopGraceMs: config.stopGraceMs,
      logger,
      print: line => {
        io.out.write(`${line}\n`);
        if (io.err.isTerminal && line.startsWith('ready ')) io.err.write(READY_HINT);
      },
      notify: createServiceManager(io.environment, logger),
      onStop: onProcessStop,
    });
  } catch (error) {
    throw startError(error, config);
  }
}

const READY_HINT =
  'The dashboard: rookery dashboard. Ctrl-C stops the service and leaves agents running; with --stop-agents it ends them.\n';

/** Warns of sandboxes whose data directory was removed, which this service does not find. */
async function warnOfLost(logger: Logger): Promise<void> {
  const { lostProcesses } = await import('../../sandbox/lost-sandboxes.ts');
  for (const sandbox of await lostProcesses())
    logger.warn({ sandbox }, 'data directory of a running sandbox was removed; "rookery stop --all" ends it');
}

/** Loads the configuration. Reports every problem on a line of its own, with the exit code 78. */
export async function loadConfigOrExplain(io: Io, options: Readonly<Record<string, unknown>>): Promise<Config> {
  const [{ loadConfig }, { ConfigError }] = await Promise.all([
    import('../../config/env.ts'),
    import('../../config/config.ts'),
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

/** Subscribes to SIGTERM, SIGINT and uncaught errors, until the returned function is called. */
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
