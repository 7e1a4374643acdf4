import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ROOT } from './command.ts';

const MAIN = join(ROOT, 'dist/main.js');
const READY_TIMEOUT_MS = 90_000;
/** Timeout of a stop. It is longer than the server's deadline, at which the server ends running calls. */
const STOP_TIMEOUT_MS = 60_000;
/** Flag with which a server ends its agents when it stops. `remove` then needs no second server. */
export const STOP_AGENTS = '--stop-agents';
/** Number of output lines of the server that an error shows. */
const KEPT_LINES = 200;

export interface ServeOptions {
  /** Data directory. Default: a new one, which `remove` deletes. */
  readonly dataDir?: string;
  /** Additional arguments of `serve`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Path of Node.js. Default: that of the caller. */
  readonly node?: string;
  /** Flags of Node.js, for example of its profiler. */
  readonly nodeArgs?: readonly string[];
  /** Program with arguments that starts the server in its place: `prlimit --nofile=100:100`. */
  readonly under?: readonly string[];
  /** Timeout until the server is ready, in milliseconds. Default: 30 s. */
  readonly readyMs?: number;
}

/**
 * The built server as a user starts it: `node dist/main.js serve`, on free ports, with a separate data
 * directory.
 * The end-to-end tests, the bench and the demo use it.
 */
export class Served {
  readonly frontendUrl: string;
  readonly metaUrl: string;
  readonly dataDir: string;
  readonly process: ChildProcess;
  readonly #options: ServeOptions;
  readonly #lines: readonly string[];

  private constructor(
    process: ChildProcess,
    urls: readonly [string, string],
    dataDir: string,
    start: {
      options: ServeOptions;
      lines: readonly string[];
    },
  ) {
    this.process = process;
    [this.frontendUrl, this.metaUrl] = urls;
    this.dataDir = dataDir;
    this.#options = start.options;
    this.#lines = start.lines;
  }

  /**
   * Starts the server and waits for its ready line. If it fails, removes everything and throws an error with
   * the server's output.
   */
  static async start(options: ServeOptions = {}): Promise<Served> {
    if (!existsSync(MAIN)) throw new Error('dist/main.js does not exist: run `npm run build` first');
    const dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), 'rookery-'));
    const [program = process.execPath, ...args] = [
      ...(options.under ?? []),
      ...[options.node ?? process.execPath, ...(options.nodeArgs ?? [])],
      ...[MAIN, 'serve', '--data-dir', dataDir, '--port', '0', '--meta-port', '0'],
      ...(options.args ?? []),
    ];
    const child = spawn(program, args, {
      env: { ...ownEnvironment(), ...options.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const lines: string[] = [];
    try {
      const urls = await readyUrls(child, lines, options.readyMs ?? READY_TIMEOUT_MS);
      return new Served(child, urls, dataDir, { options, lines });
    } catch (error) {
      child.kill('SIGKILL');
      if (options.dataDir === undefined) rmSync(dataDir, { recursive: true, force: true });
      throw error;
    }
  }

  get pid(): number {
    if (this.process.pid === undefined) throw new Error('the server was never started');
    return this.process.pid;
  }

  /** Last lines of both outputs of the server, oldest first. */
  get output(): string {
    return this.#lines.join('\n');
  }

  get hasEnded(): boolean {
    return this.process.exitCode !== null || this.process.signalCode !== null;
  }

  /**
   * Sends a signal and waits for the end. Returns the exit code, or null after a signal. Agents continue
   * unless flags end them.
   */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (this.hasEnded) return this.process.exitCode;
    const ended = new Promise<void>(resolve => this.process.once('exit', () => resolve()));
    this.process.kill(signal);
    const timer = setTimeout(() => this.process.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await ended;
    clearTimeout(timer);
    return this.process.exitCode;
  }

  /** Starts the next server on the same data directory, as after a crash or an upgrade. */
  async next(options: ServeOptions = {}): Promise<Served> {
    return await Served.start({ ...this.#options, ...options, dataDir: this.dataDir });
  }

  /**
   * Ends the server and all its agents, and deletes the data directory. Works after a SIGKILL too, when
   * agents have outlived the server.
   */
  async remove(): Promise<void> {
    try {
      const last = this.hasEnded || !this.#stopsAgents ? await this.#nextThatStopsAgents() : this;
      const code = await last.end();
      if (code !== 0) throw new Error(`the server ended with ${code ?? 'a signal'} while stopping:\n${last.output}`);
    } finally {
      rmSync(this.dataDir, { recursive: true, force: true });
    }
  }

  get #stopsAgents(): boolean {
    return this.#options.args?.includes(STOP_AGENTS) === true;
  }

  async #nextThatStopsAgents(): Promise<Served> {
    await this.end('SIGKILL');
    return await this.next({ args: [...(this.#options.args ?? []), STOP_AGENTS] });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.remove();
  }
}

/** Returns the environment without Rookery's settings, which would change the server. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ROOKERY_')));
}

function readyUrls(child: ChildProcess, lines: string[], readyMs: number): Promise<[string, string]> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => reject(new Error(`the server ${why}:\n${lines.join('\n')}`));
    const timer = setTimeout(() => fail(`was not ready after ${readyMs / 1000} s`), readyMs);
    child.once('error', error => fail(`could not be started (${error.message})`));
    // `close` comes after all output was read; `exit` may come before.
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      fail(`ended with ${code ?? signal} before it was ready`);
    });
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', line => {
        lines.push(line);
        if (lines.length > KEPT_LINES) lines.shift();
        const ready = /^ready frontend=(\S+) meta=(\S+)$/.exec(line);
        if (ready?.[1] === undefined || ready[2] === undefined) return;
        clearTimeout(timer);
        resolve([ready[1], ready[2]]);
      });
    }
  });
}
