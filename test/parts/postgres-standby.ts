import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, open, readFile, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { postgresBinary } from '../probe.ts';
import { freePort } from './free-port.ts';

/** A hot standby that streams from another PostgreSQL server and confirms each of its commits. */
export interface TestStandby extends AsyncDisposable {
  readonly port: number;
  /** Makes the standby a primary. */
  promote(): Promise<void>;
}

const NOBODY = 65_534;
const START_TIMEOUT_MS = 60_000;
const LOOK_MS = 50;

/**
 * Starts a standby. `primaryUrl` is an administrator's URL. From then on the primary waits for the standby
 * before it acknowledges a commit.
 */
export async function startStandby(primaryUrl: string): Promise<TestStandby> {
  const binary = postgresBinary();
  if (binary === null) throw new Error('no PostgreSQL server program is installed');
  const directory = await mkdtemp(join(tmpdir(), 'rk-standby-'));
  const isRoot = process.getuid?.() === 0;
  if (isRoot) await chown(directory, NOBODY, NOBODY);
  const user = isRoot ? [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'] : [];
  const data = join(directory, 'data');
  const copy = ['-D', data, '-d', primaryUrl, '-R', '-X', 'stream', '--checkpoint=fast', '--no-sync'];
  await promisify(execFile)('setpriv', [...user, join(dirname(binary), 'pg_basebackup'), ...copy], { cwd: directory });
  const port = await freePort();
  const settings = {
    port,
    listen_addresses: '127.0.0.1',
    unix_socket_directories: directory,
    shared_buffers: '16MB',
    fsync: 'off',
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const log = await open(join(directory, 'log'), 'a');
  const server = spawn('setpriv', [...user, '--pdeathsig=QUIT', binary, '-D', data, ...flags], {
    cwd: directory,
    stdio: ['ignore', log.fd, log.fd],
  });
  await log.close();
  const close = async () => {
    if (server.exitCode === null && server.signalCode === null) {
      const ended = once(server, 'exit');
      server.kill('SIGQUIT');
      await ended;
    }
    await rm(directory, { recursive: true, force: true });
  };
  try {
    await ask(primaryUrl, ["alter system set synchronous_standby_names = '*'", 'select pg_reload_conf()']);
    await until(async () => {
      const rows = await ask(primaryUrl, ["select 1 from pg_stat_replication where sync_state = 'sync'"]);
      return rows.length > 0;
    });
  } catch (error) {
    const said = await readFile(join(directory, 'log'), 'utf8');
    await close();
    throw new Error(`the standby did not start: ${said}`, { cause: error });
  }
  const own = new URL(primaryUrl);
  own.port = String(port);
  return {
    port,
    promote: async () => {
      await ask(own.href, [
        "alter system set synchronous_standby_names = ''",
        'select pg_reload_conf()',
        'select pg_promote()',
      ]);
    },
    [Symbol.asyncDispose]: close,
  };
}

async function ask(url: string, queries: readonly string[]): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    let rows: unknown[] = [];
    for (const query of queries) rows = (await client.query(query)).rows;
    return rows;
  } finally {
    await client.end();
  }
}

async function until(look: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (!(await look())) {
    if (performance.now() > deadline) throw new Error('it does not confirm commits');
    await new Promise(resolve => setTimeout(resolve, LOOK_MS));
  }
}

/**
 * An address that forwards to a changeable port, like a virtual address or a proxy that follows the primary.
 */
export class MovingAddress implements AsyncDisposable {
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();
  #port: number;

  private constructor(port: number) {
    this.#port = port;
    this.#server = net.createServer(socket => this.#pass(socket));
  }

  static async start(port: number): Promise<MovingAddress> {
    const address = new MovingAddress(port);
    address.#server.listen(0, '127.0.0.1');
    await once(address.#server, 'listening');
    return address;
  }

  get port(): number {
    return (this.#server.address() as net.AddressInfo).port;
  }

  /** Changes the port and ends the connections to the previous one. */
  move(port: number): void {
    this.#port = port;
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #pass(socket: net.Socket): void {
    const inner = net.connect(this.#port, '127.0.0.1');
    for (const [one, other] of [
      [socket, inner],
      [inner, socket],
    ] as const) {
      this.#sockets.add(one);
      one.on('error', () => undefined);
      one.once('close', () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
    socket.pipe(inner);
    inner.pipe(socket);
  }
}
