import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { chown, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { postgresBinary } from '../probe.ts';

/** A PostgreSQL server of a test file's own: real programs, a temporary directory, a free port of the loopback. */
export interface TestPostgres extends AsyncDisposable {
  /** Of the database `postgres`, with a password. */
  readonly url: string;
  /** A new, empty database; the URL of it. */
  database(): Promise<string>;
  /** Ends it as an administrator does: sessions get an error and end. Its data stay for `start`. */
  stop(): Promise<void>;
  start(): Promise<void>;
  restart(): Promise<void>;
  /** Ends it as a crash does: it recovers at the next `start`. */
  kill(): Promise<void>;
  /** Every process of it stands still: connections stay open and nothing answers. */
  pause(): void;
  resume(): void;
  /** Ends it and removes what it had. */
  close(): Promise<void>;
}

export interface TestPostgresOptions {
  /** Whether commits wait for the disk. Default false. */
  readonly fsync?: boolean;
  /** Settings of the server beside: `{ max_connections: '10' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

const USER = 'rookery';
const PASSWORD = 'a pass/word';
/** PostgreSQL refuses to run as root: `nobody` and its group on Linux. */
const NOBODY = 65_534;
const START_TIMEOUT_MS = 60_000;
const LOOK_MS = 20;

/** Fails when no server program is installed: ask `describeWith(['postgres'], …)` before. */
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

/** Text is sorted as people of a language do, so that a query which relies on the order of bytes has to say so. */
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

/** It ends when this process does, however that ends. */
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
    // It has ended meanwhile.
  }
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
