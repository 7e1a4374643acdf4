import type { Environment } from '../../core/environment.ts';
import { execFile } from '../../lib/child-process.ts';
import { endsWithin } from '../../lib/deadline.ts';
import type { Log } from '../../lib/log.ts';
import { EXIT } from '../shared/exit.ts';
import { counted } from '../shared/units.ts';

/** The server that `server.ts` creates. */
export interface Server {
  /** Counts an uncaught error. */
  uncaught(): void;
  /** Resolves when all entries listen. The URL of a disabled entry is null. */
  start(): Promise<{ readonly frontendUrl: string | null; readonly metaUrl: string | null }>;
  /**
   * Stops accepting requests, waits up to `graceMs` for running calls, and then leaves the agents running or
   * ends them. Works also after a failed `start`.
   */
  close(options: { readonly stopAgents: boolean; readonly graceMs: number }): Promise<LeftBehind>;
}

/** Instances and jobs that remain after the service has stopped. */
export interface LeftBehind {
  readonly agentsLeft: number;
  /**
   * Running jobs continue without the service; waiting jobs start with the next service. Null: the number is
   * unknown.
   */
  readonly jobsLeft: { readonly running: number; readonly waiting: number } | null;
}

export type StopReason =
  | { readonly kind: 'signal'; readonly name: string }
  /** An uncaught error, which is logged and counted. Only too many of them stop the service. */
  | { readonly kind: 'fault'; readonly error: unknown };

/** The log of a process that may end with a fatal error. */
export interface ProcessLog extends Log {
  fatal(fields: object, message: string): void;
}

export interface RunOptions {
  readonly stopAgents: boolean;
  readonly stopGraceMs: number;
  readonly logger: ProcessLog;
  /** Prints one line to stdout. */
  print(line: string): void;
  /** Notifies the service manager of readiness and of the stop. Never fails. */
  notify(state: ServiceState, status: string): void;
  /** Calls `listener` for each reason to stop, until the returned function is called. */
  onStop(listener: (reason: StopReason) => void): () => void;
}

/** Time to close listeners and database, and agents if they end too, after the grace of running calls. */
const CLOSE_MARGIN_MS = 15_000;
const STOP_AGENTS_MARGIN_MS = 60_000;

/**
 * Runs the server until a reason to stop occurs, and returns the exit code. A second signal ends it at once.
 * Fails with the error of `start`, after closing all opened parts.
 */
export async function runServer(server: Server, options: RunOptions): Promise<number> {
  const { logger, print, notify: tell } = options;
  const reasons = new Reasons();
  const faults = new Faults();
  let isFlooded = false;
  const unsubscribe = options.onStop(reason => {
    if (reason.kind === 'fault') {
      server.uncaught();
      // Further faults during the stop do not cut it short.
      if (isFlooded) return;
      isFlooded = !faults.add(performance.now());
      if (!isFlooded) {
        logger.error({ err: reason.error }, 'uncaught error; service continues');
        return;
      }
      logger.fatal({ err: reason.error }, TOO_MANY);
    } else logger.info({ signal: reason.name }, reasons.count === 0 ? 'stopping' : 'stopping at once');
    reasons.add(reason);
  });
  try {
    const started = server.start();
    // Ignores a failed start after a stop: closing ends all parts that the start has opened.
    started.catch(() => {});
    const ready = await Promise.race([started, reasons.first]).catch(async error => {
      await close(server, { stopAgents: false, graceMs: 0 }, reasons);
      throw error;
    });
    if (!('kind' in ready)) {
      const line = `ready frontend=${ready.frontendUrl ?? '-'} meta=${ready.metaUrl ?? '-'}`;
      print(line);
      tell('READY=1', line);
    }
    const reason = await reasons.first;
    tell('STOPPING=1', 'running calls may end');
    const closed = await close(server, { stopAgents: options.stopAgents, graceMs: options.stopGraceMs }, reasons);
    if (closed.error !== undefined) logger.error({ err: closed.error }, 'closing failed');
    print(`stopped: ${closed.line}`);
    return reason.kind === 'fault' ? EXIT.failure : closed.exitCode;
  } finally {
    unsubscribe();
  }
}

/** Closes the server within a bound. A second reason to stop ends the wait at once. Never throws. */
async function close(
  server: Server,
  options: { readonly stopAgents: boolean; readonly graceMs: number },
  reasons: Reasons,
): Promise<{ line: string; exitCode: number; error?: unknown }> {
  const boundMs = options.graceMs + CLOSE_MARGIN_MS + (options.stopAgents ? STOP_AGENTS_MARGIN_MS : 0);
  try {
    const closing = Promise.race([server.close(options), reasons.second]);
    if (!(await endsWithin(closing, boundMs))) {
      return { line: `closing took longer than ${boundMs / 1000} s and was aborted`, exitCode: EXIT.failure };
    }
    const result = await closing;
    if ('kind' in result) {
      return { line: 'at once; agents and jobs live on and are adopted at the next start', exitCode: EXIT.failure };
    }
    return { line: lastLine(result), exitCode: EXIT.ok };
  } catch (error) {
    return { line: 'closing failed, the log says why', exitCode: EXIT.failure, error };
  }
}

function lastLine({ agentsLeft, jobsLeft }: LeftBehind): string {
  const agents =
    agentsLeft === 0
      ? 'no agent is left'
      : atNextStart(agentsLeft, 'agent lives on and is adopted', 'agents live on and are adopted');
  if (jobsLeft === null)
    return `${agents}; the database cannot be read for jobs: existing jobs continue at the next start`;
  const { running, waiting } = jobsLeft;
  const jobs = [
    ...(running === 0 ? [] : [atNextStart(running, 'job runs on and is adopted', 'jobs run on and are adopted')]),
    ...(waiting === 0 ? [] : [atNextStart(waiting, 'job waits and is taken up', 'jobs wait and are taken up')]),
  ];
  const ends = agentsLeft + running === 0 ? [] : ['"rookery stop --all" ends everything of this machine'];
  return [agents, ...jobs, ...ends].join('; ');
}

function atNextStart(count: number, one: string, many: string): string {
  return `${counted(count, one, many)} at the next start`;
}

const MAX_FAULTS = 100;
const FAULTS_MS = 60_000;
const TOO_MANY = `more than ${MAX_FAULTS} uncaught errors in ${FAULTS_MS / 1000} s: the service stops`;

/**
 * Uncaught errors of the last minute. A single one affects only its operation; many mean that the process
 * cannot be trusted.
 */
class Faults {
  readonly #atMs: number[] = [];

  /** Adds an error. Returns false when the limit is exceeded. */
  add(nowMs: number): boolean {
    this.#atMs.push(nowMs);
    while ((this.#atMs[0] as number) <= nowMs - FAULTS_MS) this.#atMs.shift();
    return this.#atMs.length <= MAX_FAULTS;
  }
}

/** The first and the second reason to stop, each as a promise. */
class Reasons {
  readonly first: Promise<StopReason>;
  readonly second: Promise<StopReason>;
  count = 0;
  readonly #resolvers: ((reason: StopReason) => void)[] = [];

  constructor() {
    this.first = new Promise(resolve => this.#resolvers.push(resolve));
    this.second = new Promise(resolve => this.#resolvers.push(resolve));
  }

  add(reason: StopReason): void {
    this.#resolvers[this.count]?.(reason);
    this.count += 1;
  }
}

export type ServiceState = 'READY=1' | 'STOPPING=1';

/**
 * Longer than any notification takes: the socket buffers several messages, so only a broken manager blocks.
 */
const NOTIFY_TIMEOUT_MS = 10_000;

/**
 * Returns a function that notifies the service manager of this process (systemd, `Type=notify`). Without a
 * manager, the function does nothing. Failures are only logged. Node has no datagram sockets of this kind, so
 * `systemd-notify`, which is part of systemd, sends the messages.
 */
export function createServiceManager(
  { NOTIFY_SOCKET, PATH }: Environment,
  logger: Log,
): (state: ServiceState, status: string) => void {
  if (!NOTIFY_SOCKET) return () => {};
  // Passes no other variables, because settings may hold passwords.
  const env = { NOTIFY_SOCKET, PATH: PATH ?? '/usr/bin:/bin' };
  return (state, status) => {
    execFile('systemd-notify', [state, `STATUS=${status}`], { env, timeout: NOTIFY_TIMEOUT_MS }, error => {
      if (error !== null) logger.warn({ err: error, state }, 'systemd-notify failed');
    });
  };
}
