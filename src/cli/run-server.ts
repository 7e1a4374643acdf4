import { endsWithin } from '../lib/deadline.ts';
import { EXIT } from './exit.ts';
import type { ServiceState } from './service-manager.ts';

/** What `server.ts` makes. */
export interface Server {
  /** Counts an error that nobody caught. */
  uncaught(): void;
  /** Resolves when everything listens; a URL is null for an entry that is switched off. */
  start(): Promise<{ readonly frontendUrl: string | null; readonly metaUrl: string | null }>;
  /**
   * Stops accepting, lets running calls end for at most `graceMs`, and lets go of the agents, or ends them.
   * May be called after a `start` that failed.
   */
  close(options: { readonly stopAgents: boolean; readonly graceMs: number }): Promise<LeftBehind>;
}

/** Things that stay after the service has gone. */
export interface LeftBehind {
  readonly agentsLeft: number;
  /** Jobs run on without the service; those that wait do not start before there is one again. Null: nobody could be asked. */
  readonly jobsLeft: { readonly running: number; readonly waiting: number } | null;
}

export type StopReason =
  | { readonly kind: 'signal'; readonly name: string }
  /** Something threw where nobody caught it: it is logged and counted, and only when there are too many the service stops. */
  | { readonly kind: 'fault'; readonly error: unknown };

export interface StopLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
  fatal(fields: object, message: string): void;
}

export interface RunOptions {
  readonly stopAgents: boolean;
  readonly stopGraceMs: number;
  readonly logger: StopLog;
  /** One line for stdout. */
  print(line: string): void;
  /** Tells whoever started the service, when it is ready and when it goes; never fails. */
  tell(state: ServiceState, status: string): void;
  /** Calls `listener` for each reason to stop, until the returned function is called. */
  onStop(listener: (reason: StopReason) => void): () => void;
}

/** The time of closing beyond the grace of running calls: listeners, database; and the agents when they end too. */
const CLOSE_MARGIN_MS = 15_000;
const STOP_AGENTS_MARGIN_MS = 60_000;

/**
 * Runs the server until it is asked to stop, and answers the exit code. A second signal ends it at once.
 * Fails with what `start` failed with, after closing what it had opened.
 */
export async function runServer(server: Server, options: RunOptions): Promise<number> {
  const { logger, print, tell } = options;
  const reasons = new Reasons();
  const faults = new Faults();
  let isFlooded = false;
  const unsubscribe = options.onStop(reason => {
    if (reason.kind === 'fault') {
      server.uncaught();
      // Those that come while it stops do not cut the stop short.
      if (isFlooded) return;
      isFlooded = !faults.add(performance.now());
      if (!isFlooded) {
        logger.error({ err: reason.error }, 'a fault that nobody caught: the service goes on');
        return;
      }
      logger.fatal({ err: reason.error }, TOO_MANY);
    } else logger.info({ signal: reason.name }, reasons.count === 0 ? 'stopping' : 'stopping at once');
    reasons.add(reason);
  });
  try {
    const started = server.start();
    // Told to stop before it was ready: closing ends what the start has begun, whatever becomes of it.
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

/** Bounded, and cut short by a second reason to stop. Never throws. */
async function close(
  server: Server,
  options: { readonly stopAgents: boolean; readonly graceMs: number },
  reasons: Reasons,
): Promise<{ line: string; exitCode: number; error?: unknown }> {
  const boundMs = options.graceMs + CLOSE_MARGIN_MS + (options.stopAgents ? STOP_AGENTS_MARGIN_MS : 0);
  try {
    const closing = Promise.race([server.close(options), reasons.second]);
    if (!(await endsWithin(closing, boundMs))) {
      return { line: `closing took longer than ${boundMs / 1000} s and was given up`, exitCode: EXIT.failure };
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
      : counted(agentsLeft, 'agent lives on and is adopted', 'agents live on and are adopted');
  if (jobsLeft === null)
    return `${agents}; the database cannot be asked for jobs: those that there are go on at the next start`;
  const { running, waiting } = jobsLeft;
  const jobs = [
    ...(running === 0 ? [] : [counted(running, 'job runs on and is adopted', 'jobs run on and are adopted')]),
    ...(waiting === 0 ? [] : [counted(waiting, 'job waits and is taken up', 'jobs wait and are taken up')]),
  ];
  return [agents, ...jobs].join('; ');
}

function counted(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many} at the next start`;
}

const MAX_FAULTS = 100;
const FAULTS_MS = 60_000;
const TOO_MANY = `more than ${MAX_FAULTS} faults that nobody caught in ${FAULTS_MS / 1000} s: the service stops`;

/** Faults of the last minute. One costs what it broke; a flood of them says that nothing is to be trusted any more. */
class Faults {
  readonly #atMs: number[] = [];

  /** False: that was one too many. */
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
