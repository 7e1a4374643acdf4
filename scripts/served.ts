import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ROOT } from './command.ts';

const MAIN = join(ROOT, 'dist/main.js');
const READY_TIMEOUT_MS = 30_000;
/** Longer than the server's own deadline, which ends calls that still run. */
const STOP_TIMEOUT_MS = 60_000;
/** How much of the server's own output is kept for the text of an error. */
const KEPT_LINES = 200;

export interface ServeOptions {
  /** Default: a fresh one, which `remove` deletes. */
  readonly dataDir?: string;
  /** More arguments of `serve`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** `node` by default; flags of node (a profiler) go here. */
  readonly nodeArgs?: readonly string[];
  /** A program and its arguments that become the server: `prlimit --nofile=100:100`. */
  readonly under?: readonly string[];
  /** How long it may take until it is ready; 30 s by default. */
  readonly readyMs?: number;
}

/**
 * The built server as a user starts it: `node dist/main.js serve`, on free ports, with a data directory of its own.
 * Used by the end-to-end tests, the bench and the demo.
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

  /** Starts it and waits for its ready line. When it fails, nothing is left, and the error shows what the server said. */
  static async start(options: ServeOptions = {}): Promise<Served> {
    if (!existsSync(MAIN)) throw new Error('dist/main.js is not there: run `npm run build` first');
    const dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), 'rookery-'));
    const [program = process.execPath, ...args] = [
      ...(options.under ?? []),
      ...[process.execPath, ...(options.nodeArgs ?? [])],
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

  /** What it wrote last, both outputs, oldest line first. */
  get output(): string {
    return this.#lines.join('\n');
  }

  get hasEnded(): boolean {
    return this.process.exitCode !== null || this.process.signalCode !== null;
  }

  /** Sends a signal and waits for the end; returns the exit code (null after a signal). Agents live on unless the flags say otherwise. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (this.hasEnded) return this.process.exitCode;
    const ended = new Promise<void>(resolve => this.process.once('exit', () => resolve()));
    this.process.kill(signal);
    const timer = setTimeout(() => this.process.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await ended;
    clearTimeout(timer);
    return this.process.exitCode;
  }

  /** The next server on the same data directory, as after a crash or an upgrade. */
  async next(options: ServeOptions = {}): Promise<Served> {
    return await Served.start({ ...this.#options, ...options, dataDir: this.dataDir });
  }

  /** Ends the server and every agent of it, and deletes the data directory. Also after a `SIGKILL`, when agents have outlived the server. */
  async remove(): Promise<void> {
    try {
      await this.end('SIGKILL');
      const last = await this.next({ args: [...(this.#options.args ?? []), '--stop-agents'] });
      const code = await last.end();
      if (code !== 0) throw new Error(`the server ended with ${code ?? 'a signal'} while stopping:\n${last.output}`);
    } finally {
      rmSync(this.dataDir, { recursive: true, force: true });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.remove();
  }
}

/** Ours without Rookery's own settings, which would reach into the server. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ROOKERY_')));
}

function readyUrls(child: ChildProcess, lines: string[], readyMs: number): Promise<[string, string]> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => reject(new Error(`the server ${why}:\n${lines.join('\n')}`));
    const timer = setTimeout(() => fail(`was not ready after ${readyMs / 1000} s`), readyMs);
    child.once('error', error => fail(`could not be started (${error.message})`));
    // `close`, not `exit`: by then all that it wrote has been read.
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
