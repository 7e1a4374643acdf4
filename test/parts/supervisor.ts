import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from './free-port.ts';

const START_TIMEOUT_MS = 20_000;
const POLL_MS = 20;

export interface SupervisordOptions {
  /** Patterns of `[include] files`; `null` omits the section. Default: `*.conf` of the include directory. */
  readonly include?: string | null;
  /** Credentials that both of its servers require. */
  readonly credentials?: { readonly user: string; readonly password: string };
  /** True if supervisord also serves TCP. */
  readonly tcp?: boolean;
}

/** A real supervisord for one test, in its own directory. */
export class TestSupervisord {
  readonly directory: string;
  readonly includeDir: string;
  readonly #socket: string;
  #port = 0;
  #child: ChildProcess | null = null;

  private constructor() {
    this.directory = mkdtempSync(join(tmpdir(), 'rookery-supervisord-'));
    this.includeDir = join(this.directory, 'include');
    this.#socket = join(this.directory, 'supervisor.sock');
    mkdirSync(this.includeDir);
  }

  static async start(options: SupervisordOptions = {}): Promise<TestSupervisord> {
    const made = new TestSupervisord();
    if (options.tcp === true) made.#port = await freePort();
    made.configure(options);
    try {
      await made.start();
    } catch (error) {
      await made.dispose();
      throw error;
    }
    return made;
  }

  get url(): string {
    return `unix://${this.#socket}`;
  }

  /** `host:port` of its TCP server. */
  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Writes the configuration, which takes effect at the next start or reload. */
  configure({ include, credentials }: SupervisordOptions): void {
    const files = include === undefined ? join(this.includeDir, '*.conf') : include;
    const login =
      credentials === undefined
        ? ''
        : `username = ${credentials.user}\npassword = ${credentials.password.replaceAll('%', '%%')}\n`;
    writeFileSync(
      join(this.directory, 'supervisord.conf'),
      `[supervisord]
nodaemon = true
logfile = ${join(this.directory, 'supervisord.log')}
pidfile = ${join(this.directory, 'supervisord.pid')}
childlogdir = ${this.directory}
[unix_http_server]
file = ${this.#socket}
${login}${this.#port === 0 ? '' : `[inet_http_server]\nport = 127.0.0.1:${this.#port}\n${login}`}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl = unix://${this.#socket}
${login}${files === null ? '' : `[include]\nfiles = ${files}\n`}`,
    );
  }

  /** Starts supervisord and returns when it answers. */
  async start(): Promise<void> {
    const child = spawn('supervisord', ['--configuration', join(this.directory, 'supervisord.conf')], {
      cwd: this.directory,
      stdio: 'ignore',
    });
    this.#child = child;
    const deadlineMs = Date.now() + START_TIMEOUT_MS;
    // Exit code 4: supervisord answers, but not all programs run.
    while (![0, 3].includes(this.control('status').status)) {
      if (child.exitCode !== null || Date.now() > deadlineMs)
        throw new Error(`supervisord did not start: ${this.log()}`);
      await delay(POLL_MS);
    }
  }

  /** Ends supervisord as an operator does, or with another signal. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }

  /** Runs `supervisorctl`. */
  control(...args: string[]): { readonly status: number; readonly stdout: string } {
    const { status, stdout } = spawnSync(
      'supervisorctl',
      ['--configuration', join(this.directory, 'supervisord.conf'), ...args],
      { encoding: 'utf8' },
    );
    return { status: status ?? -1, stdout };
  }

  /** Returns the names of the programs that supervisord knows. */
  programs(): readonly string[] {
    return this.control('status')
      .stdout.split('\n')
      .flatMap(line => /^(\S+)\s+[A-Z]+\b/.exec(line)?.[1] ?? []);
  }

  /** Returns the names in its include directory, hidden files included. */
  included(): readonly string[] {
    return readdirSync(this.includeDir);
  }

  log(): string {
    try {
      return readFileSync(join(this.directory, 'supervisord.log'), 'utf8');
    } catch {
      return 'it has written no log';
    }
  }

  async dispose(): Promise<void> {
    await this.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
