import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { chown, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { postgresBinary } from '../probe.ts';
import { freePort } from './free-port.ts';

/**
 * A PostgreSQL server for one test file: real programs, a temporary directory, a free port of the loopback.
 */
export interface TestPostgres extends AsyncDisposable {
  /** URL of the database `postgres`, with a password. */
  readonly url: string;
  /** Creates an empty database and returns its URL. */
  database(): Promise<string>;
  /**
   * Stops the server as an administrator does: sessions get an error and end. `start` finds its data again.
   */
  stop(): Promise<void>;
  start(): Promise<void>;
  restart(): Promise<void>;
  /** Kills the server as a crash does; the next `start` recovers its data. */
  kill(): Promise<void>;
  /** Stops every process of the server with a signal: connections stay open without an answer. */
  pause(): void;
  resume(): void;
  /** Ends the server and removes its files. */
  close(): Promise<void>;
}

export interface TestPostgresOptions {
  /** True if commits wait for the disk; default false. */
  readonly fsync?: boolean;
  /** Additional settings of the server: `{ max_connections: '10' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

const USER = 'rookery';
const PASSWORD = 'a pass/word';
/** Uid and gid of `nobody` on Linux; PostgreSQL refuses to run as root. */
const NOBODY = 65_534;
const START_TIMEOUT_MS = 60_000;
const LOOK_MS = 20;

/**
 * Starts a server; fails when no server program is installed. The suite must be in
 * `describeWith(['postgres'], …)`.
 */
export async function startPostgres({ fsync = false, settings = {} }: TestPostgresOptions = {}): Promise<TestPostgres> {
  const binary = postgresBinary();
  if (binary === null) throw new Error('no PostgreSQL server program is installed');
  const directory = await mkdtemp(join(tmpdir(), 'rk-pg-'));
  try {
    const data = await makeCluster(binary, directory);
    const server = new Server(binary, directory, data, await freePort(), { fsync: fsync ? 'on' : 'off', ...settings });
    await server.start();
    return server;
  } catch (error) {
    await rm(directory, { recursive: true, force: true });
    throw error;
  }
}

/**
 * Creates the data directory. Text sorts by the rules of a language, so a query that needs byte order must
 * say so.
 */
async function makeCluster(binary: string, directory: string): Promise<string> {
  const data = join(directory, 'data');
  const passwordFile = join(directory, 'password');
  await writeFile(passwordFile, PASSWORD);
  if (process.getuid?.() === 0) for (const path of [directory, passwordFile]) await chown(path, NOBODY, NOBODY);
  const sorted = (await hasIcu(binary)) ? ['--locale-provider=icu', '--icu-locale=en-US'] : [];
  const args = [
    ...['-D', data, '-U', USER, `--pwfile=${passwordFile}`, '--auth=scram-sha-256', '--no-sync'],
    ...['--encoding=UTF8', '--locale=C.UTF-8', ...sorted],
  ];
  const [program, all] = asOrdinaryUser(join(dirname(binary), 'initdb'), args);
  await promisify(execFile)(program, all, { cwd: directory });
  return data;
}

async function hasIcu(binary: string): Promise<boolean> {
  const { stdout } = await promisify(execFile)(join(dirname(binary), 'initdb'), ['--help']);
  return stdout.includes('--icu-locale');
}

/**
 * Returns the command that runs a program as an ordinary user. The program ends when this process ends in any
 * way.
 */
function asOrdinaryUser(program: string, args: readonly string[]): readonly [string, readonly string[]] {
  const user = process.getuid?.() === 0 ? [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'] : [];
  return ['setpriv', [...user, '--pdeathsig=QUIT', program, ...args]];
}

class Server implements TestPostgres {
  readonly url: string;
  readonly #binary: string;
  readonly #directory: string;
  readonly #data: string;
  readonly #port: number;
  readonly #settings: Readonly<Record<string, string>>;
  #process: ChildProcess | undefined;
  #databases = 0;
  #paused: readonly number[] = [];

  constructor(
    binary: string,
    directory: string,
    data: string,
    port: number,
    settings: Readonly<Record<string, string>>,
  ) {
    this.#binary = binary;
    this.#directory = directory;
    this.#data = data;
    this.#port = port;
    this.#settings = settings;
    this.url = this.#urlOf('postgres');
  }

  async database(): Promise<string> {
    this.#databases += 1;
    const name = `test_${this.#databases}`;
    const client = new pg.Client({ connectionString: this.url });
    await client.connect();
    await client.query(`create database ${name}`).finally(() => client.end());
    return this.#urlOf(name);
  }

  async start(): Promise<void> {
    if (this.#process !== undefined) return;
    const settings = {
      port: String(this.#port),
      listen_addresses: '127.0.0.1',
      unix_socket_directories: this.#directory,
      shared_buffers: '16MB',
      ...this.#settings,
    };
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const [program, args] = asOrdinaryUser(this.#binary, ['-D', this.#data, ...flags]);
    const log = await open(join(this.#directory, 'log'), 'a');
    const started = spawn(program, args, { cwd: this.#directory, stdio: ['ignore', log.fd, log.fd] });
    await log.close();
    this.#process = started;
    started.once('exit', () => {
      this.#process = undefined;
    });
    await this.#answering();
  }

  stop(): Promise<void> {
    return this.#end('SIGINT');
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  kill(): Promise<void> {
    return this.#end('SIGQUIT');
  }

  pause(): void {
    this.#paused = this.#processes();
    for (const pid of this.#paused) signal(pid, 'SIGSTOP');
  }

  resume(): void {
    for (const pid of this.#paused) signal(pid, 'SIGCONT');
    this.#paused = [];
  }

  async close(): Promise<void> {
    this.resume();
    await this.kill();
    await rm(this.#directory, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #end(how: 'SIGINT' | 'SIGQUIT'): Promise<void> {
    const running = this.#process;
    if (running === undefined) return;
    const ended = once(running, 'exit');
    running.kill(how);
    await ended;
  }

  #processes(): readonly number[] {
    const pid = this.#process?.pid;
    return pid === undefined ? [] : [pid, ...childrenOf(pid)];
  }

  async #answering(): Promise<void> {
    const deadline = performance.now() + START_TIMEOUT_MS;
    for (;;) {
      const client = new pg.Client({ connectionString: this.url });
      client.on('error', () => undefined);
      const isThere = await client.connect().then(
        () => true,
        () => false,
      );
      await client.end().catch(() => undefined);
      if (isThere) return;
      if (this.#process === undefined || performance.now() > deadline) {
        throw new Error(`PostgreSQL did not start: ${await readFile(join(this.#directory, 'log'), 'utf8')}`);
      }
      await new Promise(resolve => setTimeout(resolve, LOOK_MS));
    }
  }

  #urlOf(database: string): string {
    return `postgres://${USER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${this.#port}/${database}`;
  }
}

function childrenOf(pid: number): readonly number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return text.split(' ').filter(Boolean).map(Number);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // The process has ended meanwhile.
  }
}
